/* Memory from before an adoption is unmapped once a file exists, mapped again in the same place
 * without rights, and then gets rights.
 * usage: released_rights FILE      status 0 if it has them */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DATA = 32 << 20 };

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    char *data = mmap(NULL, DATA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 3, DATA);
    puts("ready"), fflush(stdout);
    while (access(arguments[1], F_OK))
        usleep(10000);
    munmap(data, DATA);
    char *again = mmap(data, DATA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (again != data || mprotect(again, DATA, PROT_READ | PROT_WRITE))
        return 1;
    memset(again, 5, DATA);
    puts("written"), fflush(stdout);
    return again[DATA - 1] != 5;
}

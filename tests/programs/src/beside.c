/* Memory beside the budget: shared, or executable; and not there any more when the program ends.
 *
 * beside shared MIB        fills shared memory, forks a child that reads it, unmaps it
 * beside code MIB          fills executable memory and unmaps it piece by piece
 * beside protected MIB     fills memory that it then may only read, and ends
 * beside hog MIB           fills shared memory, and ends
 * beside both MIB FILE     fills as much shared and as much paged memory, writes its process id to
 *                          FILE, and goes on until a signal ends it
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char *map(size_t bytes, int prot, int flags) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE | prot, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    fill(memory, bytes, 1);
    return memory;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20, piece = 256 << 10;
    if (strcmp(argv[1], "code") == 0) {
        char *memory = map(bytes, PROT_EXEC, MAP_PRIVATE);
        for (size_t at = 0; at < bytes; at += piece)
            CHECK(munmap(memory + at, piece) == 0);
        return 0;
    }
    if (strcmp(argv[1], "protected") == 0) {
        char *memory = map(bytes, 0, MAP_PRIVATE);
        CHECK(mprotect(memory, bytes, PROT_READ) == 0);
        return differing(memory, bytes, 1) != 0;
    }
    char *shared = map(bytes, 0, MAP_SHARED);
    if (strcmp(argv[1], "shared") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        int status = differing(shared, bytes, 1) != 0;
        if (child == 0)
            _exit(status);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(munmap(shared, bytes) == 0);
    }
    if (strcmp(argv[1], "both") == 0) {
        char *paged = malloc(bytes);
        CHECK(paged != NULL);
        fill(paged, bytes, 2);
        FILE *file = fopen(argv[3], "w");
        CHECK(file != NULL && fprintf(file, "%d\n", (int)getpid()) > 0 && fclose(file) == 0);
        for (;;)
            pause();
    }
    return 0;
}

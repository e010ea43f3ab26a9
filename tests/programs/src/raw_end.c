/* A program whose threads end by the system call itself, of which the C library does not learn.
 *
 * usage: raw_end MIB instruction|call|threads
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>

#include "check.h"

enum { STATUS = 37 };

static void end(void)
{
#ifdef __x86_64__
    long number = SYS_exit, status = STATUS;
    __asm__ volatile("syscall" : : "a"(number), "D"(status) : "rcx", "r11", "memory");
#else
    syscall(SYS_exit, STATUS);
#endif
}

static void *later(void *unused)
{
    usleep(200000);
    end();
    return unused;
}

int main(int count, char **words)
{
    CHECK(count > 2);
    size_t size = (size_t)atoi(words[1]) << 20;
    char *data = malloc(size);
    CHECK(data != NULL);
    fill(data, size, 1);
    CHECK(differing(data, size, 1) == 0);
    pthread_t thread;
    if (strcmp(words[2], "threads") == 0)
        CHECK(pthread_create(&thread, NULL, later, NULL) == 0);
    if (strcmp(words[2], "call") == 0)
        syscall(SYS_exit, STATUS);
    end();
}

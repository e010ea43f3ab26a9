/* A program with its heap at the break, as allocators of old and tcmalloc have it. It takes no
 * other memory meanwhile: the C library's malloc would move the break, too.
 *
 * usage: brk MIB
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "check.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

static void says(const char *what)
{
    CHECK(write(1, what, strlen(what)) == (ssize_t)strlen(what));
}

/* The break grows in small steps, each where the last one ended. */
static char *grow(size_t bytes)
{
    char *start = sbrk(0);
    for (size_t done = 0, step; done < bytes; done += step) {
        step = 8 * (1 + done % 9973);
        if (step > bytes - done)
            step = bytes - done;
        CHECK((char *)sbrk(step) == start + done && (char *)sbrk(0) == start + done + step);
    }
    CHECK(not_zero(start, bytes) == 0);
    fill(start, bytes, 1);
    return start;
}

/* What it shrinks by is gone, except for the rest of a page. */
static void shrink(char *start, size_t bytes)
{
    CHECK((char *)sbrk(-(intptr_t)(bytes / 2)) == start + bytes && (char *)sbrk(0) == start + bytes / 2);
    CHECK(sbrk(bytes / 2) != (void *)-1 && differing(start, bytes / 2, 1) == 0);
    CHECK(not_zero(start + bytes / 2 + PAGE, bytes / 2 - PAGE) == 0);
    CHECK(brk(start + bytes / 4) == 0 && (char *)sbrk(0) == start + bytes / 4);
    CHECK(brk(start + bytes) == 0 && differing(start, bytes / 4, 1) == 0);
    CHECK(not_zero(start + bytes / 4 + PAGE, bytes / 4) == 0);
    fill(start, bytes, 2);
}

static void in_a_child(char *start, size_t bytes)
{
    pid_t child = fork();
    CHECK(child >= 0);
    CHECK(differing(start, bytes, 2) == 0);
    if (child == 0) {
        CHECK((char *)sbrk(MIB) == start + bytes && not_zero(start + bytes, MIB) == 0);
        fill(start, bytes + MIB, 3);
        CHECK(differing(start, bytes + MIB, 3) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK((char *)sbrk(0) == start + bytes && differing(start, bytes, 2) == 0);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) * MIB;
    char *start = grow(bytes);
    says("grows: ok\n");
    shrink(start, bytes);
    says("shrinks: ok\n");
    in_a_child(start, bytes);
    says("in a child: ok\n");
    errno = 0;
    CHECK(sbrk((intptr_t)1 << 46) == (void *)-1 && errno == ENOMEM);
    /* Below its start nothing changes, and that is no error. */
    CHECK(brk(start - 256 * MIB) == 0 && (char *)sbrk(0) == start + bytes);
    CHECK(brk(start) == 0 && (char *)sbrk(0) == start);
    says("ends: ok\n");
    return 0;
}

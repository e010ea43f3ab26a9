/* A child that has its parent's memory and a stack of 2 KiB, of which it uses little: calls that
 * return, an exec that fails, and one that does not. What lies below the stack stays as it is.
 *
 * usage: narrow PROGRAM
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

enum { NARROW = 2 << 10, BELOW = 256 << 10, FAILS = 9 };

static int in_child(void *program)
{
    char *arguments[] = {program, NULL}, *none[] = {NULL};
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || munmap(at, 4096) != 0)
        return FAILS;
    if (execve("/nowhere/at/all", arguments, none) != -1 || errno != ENOENT)
        return FAILS;
    execve(program, arguments, none);
    return FAILS;
}

int main(int count, char **words)
{
    CHECK(count == 2);
    char *room = mmap(NULL, BELOW + NARROW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    fill(room, BELOW, 5);
    int status, child = clone(in_child, room + BELOW + NARROW, CLONE_VM | CLONE_VFORK | SIGCHLD, words[1]);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(differing(room, BELOW, 5) == 0);
    puts("all right");
    return 0;
}

/* Executes a program, or, with --clone, forks a child in a new namespace by the system call.
 *
 * usage: starter PROGRAM ARGS...   starter --clone
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "--clone") == 0) {
        long child = syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, 0L, 0L, 0L, 0L);
        if (child == 0)
            _exit(0);
        perror("clone");
        return child < 0 ? 3 : 0;
    }
    execv(argv[1], argv + 1);
    perror("execv");
    return 4;
}

/* Takes descriptors of its own by a direct system call, and forks: the child must not see what
 * the parent writes then. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char *filled(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fill(at, bytes, 1);
    return at;
}

static void divide(void) {
    size_t bytes = (size_t)16 << 20;
    char *at = filled(bytes);
    filled(bytes);
    CHECK(syscall(SYS_unshare, CLONE_FILES) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(200000);
        _exit(differing(at, bytes, 1) != 0);
    }
    fill(at, bytes, 2);
    filled(bytes);
}

/* In a child, whose own child is then this process's to wait for. */
int main(void) {
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        divide();
        _exit(0);
    }
    int status, stopped = 0, wrong = 0;
    pid_t ended;
    while ((ended = wait(&status)) > 0) {
        stopped |= ended == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        wrong |= ended != child && WIFEXITED(status) && WEXITSTATUS(status) != 0;
    }
    CHECK(stopped && !wrong);
    return 0;
}

/* A prototype: a task that shares a program's memory and files, outside the program's thread group,
 * as a pager would be that goes on while the program is stopped. docs/design/pager.md says what
 * follows from it: what it keeps that the program has given up, and how long it stays.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { STACK = 1 << 16, ORDINARY = 65534, FILES = 100 };

/* What the task is asked, and what it answers. */
enum { NOTHING, PARENT, USER };
static volatile int question;
static volatile long answer;
static volatile int outside;
static int go[2], told[2];
static char stack[STACK] __attribute__((aligned(16)));

/* The program has ended. The task goes once nobody looks any more. */
static void over(int signal) {
    char byte;
    (void)signal;
    while (read(go[0], &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static int serve(void *nothing) {
    (void)nothing;
    signal(SIGUSR1, over);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    setpgid(0, 0);
    outside = (int)syscall(SYS_getpid);
    for (;;) {
        if (question != NOTHING) {
            answer = syscall(question == PARENT ? SYS_getppid : SYS_getuid);
            question = NOTHING;
        }
        usleep(1000);
    }
    return 0;
}

static long ask(int what) {
    question = what;
    while (question != NOTHING)
        usleep(1000);
    return answer;
}

/* The thread of the program whose place the task takes. */
static void *begin(void *nothing) {
    int status;
    pid_t task = clone(serve, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, NULL);
    CHECK(task > 0);
    waitpid(task, &status, __WALL);
    return nothing;
}

/* The program gives up rights. Those of its thread group are given up in all its threads. */
static void give_up(void) {
    int status;
    CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    CHECK(waitpid(-1, &status, WNOHANG | __WALL) == 0);
    struct rlimit few = {FILES, FILES}, of_task;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(prlimit(outside, RLIMIT_NOFILE, NULL, &of_task) == 0 && of_task.rlim_cur != FILES);
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof lines / sizeof *lines, lines};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0);
    CHECK(syscall(SYS_getppid) == -1 && errno == EPERM && ask(PARENT) > 0);
    CHECK(setuid(ORDINARY) == 0 && getuid() == ORDINARY && ask(USER) == 0);
}

static pid_t program(const char *path, int gives_up) {
    CHECK(pipe(go) == 0 && pipe(told) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0)
        return child;
    pthread_t thread;
    int file = open(path, O_RDWR);
    CHECK(file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0);
    CHECK(pthread_create(&thread, NULL, begin, NULL) == 0);
    while (outside == 0)
        usleep(1000);
    if (gives_up)
        give_up();
    int task = outside;
    CHECK(write(told[1], &task, sizeof task) == sizeof task);
    for (;;)
        pause();
}

int main(int count, char **words) {
    CHECK(count > 1);
    int file = open(words[1], O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0);
    if (geteuid() != 0) {
        puts("SKIPPED: not root");
        return 0;
    }
    /* Its children's orphans become its own. */
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        int status, task;
        pid_t child = program(words[1], gives_up);
        CHECK(read(told[0], &task, sizeof task) == sizeof task);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        /* The program has ended, and was waited for; the task is there, and the file is locked. */
        CHECK(kill(task, 0) == 0 && flock(file, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
        CHECK(write(go[1], "", 1) == 1);
        if (gives_up) {
            /* The signal that tells of a parent's end needs the right to send it. */
            usleep(100000);
            CHECK(waitpid(task, &status, __WALL | WNOHANG) == 0 && kill(task, SIGKILL) == 0);
        }
        CHECK(waitpid(task, &status, __WALL) == task);
        CHECK(flock(file, LOCK_EX | LOCK_NB) == 0 && flock(file, LOCK_UN) == 0);
        for (int end = 0; end < 2; end++)
            CHECK(close(go[end]) == 0 && close(told[end]) == 0);
        outside = 0;
    }
    puts("the task outside keeps a user, a filter, limits and locks that the program no longer has");
    return 0;
}

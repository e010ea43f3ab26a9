/* A program with a filter of system calls of its own, and a handler for what that traps.
   Usage: own_filter MIB */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int trapped;

static void on_trap(int signal, siginfo_t *what, void *context) {
    (void)signal;
    trapped = what->si_syscall;
#ifdef __aarch64__
    ((ucontext_t *)context)->uc_mcontext.regs[0] = -EPERM;
#else
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
#endif
}

#define IF(number, answer) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer)

static void status_of(pid_t child, const char *name) {
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s: status %x\n", name, status);
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count > 2) {
        long answer = syscall(SYS_getppid);
        printf("still filtered: %ld %d\n", answer, errno);
        return 4;
    }
    size_t words = strtoul(arguments[1], NULL, 10) << 17;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, seen;
    sigaction(SIGSYS, &action, NULL);
    sigaction(SIGSYS, NULL, &seen);
    printf("own handler: %d\n", seen.sa_sigaction == on_trap);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        IF(SYS_getppid, SECCOMP_RET_ERRNO | 77),
        IF(SYS_getpgid, SECCOMP_RET_TRAP | 5),
        IF(SYS_swapon, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("set: %d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    printf("at no address: %d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (void *)8));
    printf("mode: %d\n", prctl(PR_GET_SECCOMP));
    long answer = syscall(SYS_getppid);
    printf("refused: %ld %d\n", answer, errno);
    answer = syscall(SYS_getpgid, 0);
    printf("trapped: %ld %d %d\n", answer, errno, trapped);

    uint64_t *data = malloc(words * sizeof *data), sum = 0;
    if (!data) return 3;
    for (size_t i = 0; i < words; i++) data[i] = i * 77;
    for (size_t i = 0; i < words; i++) sum = sum * 31 + data[i];
    printf("sum: %llx\n", (unsigned long long)sum);
    free(data);

    pid_t child = fork();
    if (child == 0) {
        execl(arguments[0], arguments[0], "1", "child", (char *)NULL);
        _exit(1);
    }
    status_of(child, "executed");
    child = fork();
    if (child == 0) {
        syscall(SYS_swapon, 0, 0);
        _exit(2);
    }
    status_of(child, "killed");
    raise(SIGSYS);
    puts("sent");
    return 0;
}

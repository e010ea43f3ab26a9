/* Filters of system calls like those that programs set, and calls on paged-out memory under such a
   filter. Usage: sandboxes MIB KIND. `deny`: a few calls fail (systemd, Docker); `broker`: calls
   with paths arrive in the program's own handler (Chromium). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

static char *data;
static size_t bytes;
static volatile int over, asked;
static int ends[2];

#define IF(number, answer) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer)
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define END(answer) BPF_STMT(BPF_RET | BPF_K, answer)

static struct sock_filter deny[] = {
    NUMBER,
    IF(SYS_mount, SECCOMP_RET_ERRNO | EPERM),
    IF(SYS_ptrace, SECCOMP_RET_ERRNO | EPERM),
    IF(SYS_process_vm_readv, SECCOMP_RET_ERRNO | EPERM),
    IF(SYS_keyctl, SECCOMP_RET_ERRNO | ENOSYS),
    IF(SYS_io_uring_setup, SECCOMP_RET_ERRNO | ENOSYS),
    END(SECCOMP_RET_ALLOW),
};
static struct sock_filter broker[] = {
    NUMBER,
    IF(SYS_openat, SECCOMP_RET_TRAP),
#ifdef __x86_64__
    IF(SYS_open, SECCOMP_RET_TRAP),
    IF(SYS_stat, SECCOMP_RET_TRAP),
    IF(SYS_readlink, SECCOMP_RET_TRAP),
#endif
    END(SECCOMP_RET_ALLOW),
};

/* The path is the second argument of `openat`, and the first of the others. */
static void on_trap(int signal, siginfo_t *what, void *context) {
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
    int is_second = what->si_syscall == SYS_openat;
#ifdef __x86_64__
    const char *path = (const char *)machine->gregs[is_second ? REG_RSI : REG_RDI];
    greg_t *answer = &machine->gregs[REG_RAX];
#else
    const char *path = (const char *)machine->regs[is_second];
    unsigned long long *answer = &machine->regs[0];
#endif
    (void)signal;
    asked++;
    *answer = strcmp(path, "/allowed") ? -EACCES : 1000;
}

static void *adversary(void *unused) {
    uint64_t seed = 88172645463325252ull;
    while (!over) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        (void)*(volatile char *)(data + seed % bytes);
    }
    return unused;
}
static char *place(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return data + *seed % (bytes / 4096 - 4) * 4096 + *seed % 5000;
}

static int round_trip(uint64_t *seed, int kind) {
    char *from = place(seed), *to = place(seed);
    memset(from, 3, 3000);
    if (from + 3000 > to && to + 3000 > from)
        return 0;
    struct iovec *pieces = (void *)((uintptr_t)place(seed) & ~15ul), two[2] = {{to, 1000}, {to + 1000, 2000}};
    int wrong = write(ends[1], from, 3000) != 3000;
    if (kind % 3 == 0) {
        wrong += read(ends[0], to, 3000) != 3000;
    } else if (kind % 3 == 1) {
        wrong += readv(ends[0], two, 2) != 3000;
    } else {
        memcpy(pieces, two, sizeof two);
        wrong += syscall(SYS_readv, ends[0], pieces, 2) != 3000;
    }
    for (int i = 0; i < 3000; i++)
        wrong += to[i] != 3;
    struct pollfd *ready = (void *)((uintptr_t)place(seed) & ~15ul);
    *ready = (struct pollfd){ends[1], POLLOUT, 0};
    return wrong + (poll(ready, 1, 0) != 1);
}

int main(int count, char **arguments) {
    if (count != 3 || pipe(ends))
        return 2;
    bytes = strtoul(arguments[1], NULL, 10) << 20;
    data = malloc(bytes);
    memset(data, 1, bytes);
    pthread_t other;
    pthread_create(&other, NULL, adversary, NULL);
    struct sock_fprog filter = {sizeof deny / sizeof *deny, deny};
    if (!strcmp(arguments[2], "broker")) {
        filter = (struct sock_fprog){sizeof broker / sizeof *broker, broker};
        struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
        sigaction(SIGSYS, &action, NULL);
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int set = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), wrong = 0;
    uint64_t seed = 5;
    for (int i = 0; i < 3000; i++) {
        wrong += round_trip(&seed, i);
        if (!strcmp(arguments[2], "broker") && i % 10 == 0) {
            char *path = strcpy(place(&seed), i % 20 ? "/allowed" : "/forbidden");
            int answer = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
            wrong += i % 20 ? answer != 1000 : answer != -1 || errno != EACCES;
            wrong += stat(path, (void *)place(&seed)) == 0 && !i;
        }
        if (!strcmp(arguments[2], "deny"))
            wrong += syscall(SYS_mount, place(&seed), place(&seed), "none", 0, 0) != -1 || errno != EPERM;
    }
    over = 1;
    pthread_join(other, NULL);
    printf("%s: set %d, %d wrong, %s\n", arguments[2], set, wrong, asked ? "asked" : "never asked");
    fflush(stdout);
    _exit(wrong != 0);
}

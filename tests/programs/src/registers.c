/* What the registers of a thread hold after its system calls: the same as before, except for the
 * answer, and on x86-64 rcx and r11. The calls are made by an instruction of the program's own: of
 * memory, waits with a set of blocked signals, also with a handler, links, files, programs that are
 * not there, forks.
 *
 * usage: registers MIB [ROUNDS]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

/* The processor's registers: general ones, the answer's first, and vectors. */
struct state {
    uint64_t general[32];
    uint64_t vectors[64];
};

/* Makes a call with these registers, and notes what they are then. */
void call_with(const struct state *before, struct state *after);

#ifdef __aarch64__
#define GENERAL 32
#define VECTORS 64
/* x0 to x30, and the flags. */
__asm__(".text\n"
        ".globl call_with\n"
        ".type call_with, %function\n"
        "call_with:\n"
        "stp x29, x30, [sp, #-176]!\n"
        "stp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\nstp x23, x24, [sp, #48]\n"
        "stp x25, x26, [sp, #64]\nstp x27, x28, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "str x1, [sp, #160]\n"
        "mov x30, x0\n"
        "add x2, x0, #256\n"
        "ld1 {v0.2d-v3.2d}, [x2], #64\nld1 {v4.2d-v7.2d}, [x2], #64\n"
        "ld1 {v8.2d-v11.2d}, [x2], #64\nld1 {v12.2d-v15.2d}, [x2], #64\n"
        "ld1 {v16.2d-v19.2d}, [x2], #64\nld1 {v20.2d-v23.2d}, [x2], #64\n"
        "ld1 {v24.2d-v27.2d}, [x2], #64\nld1 {v28.2d-v31.2d}, [x2]\n"
        "ldr x0, [x30, #248]\n"
        "msr nzcv, x0\n"
        "ldp x0, x1, [x30]\nldp x2, x3, [x30, #16]\nldp x4, x5, [x30, #32]\nldp x6, x7, [x30, #48]\n"
        "ldp x8, x9, [x30, #64]\nldp x10, x11, [x30, #80]\nldp x12, x13, [x30, #96]\n"
        "ldp x14, x15, [x30, #112]\nldp x16, x17, [x30, #128]\nldp x18, x19, [x30, #144]\n"
        "ldp x20, x21, [x30, #160]\nldp x22, x23, [x30, #176]\nldp x24, x25, [x30, #192]\n"
        "ldp x26, x27, [x30, #208]\nldp x28, x29, [x30, #224]\nldr x30, [x30, #240]\n"
        "svc #0\n"
        "str x30, [sp, #168]\n"
        "ldr x30, [sp, #160]\n"
        "stp x0, x1, [x30]\nstp x2, x3, [x30, #16]\nstp x4, x5, [x30, #32]\nstp x6, x7, [x30, #48]\n"
        "stp x8, x9, [x30, #64]\nstp x10, x11, [x30, #80]\nstp x12, x13, [x30, #96]\n"
        "stp x14, x15, [x30, #112]\nstp x16, x17, [x30, #128]\nstp x18, x19, [x30, #144]\n"
        "stp x20, x21, [x30, #160]\nstp x22, x23, [x30, #176]\nstp x24, x25, [x30, #192]\n"
        "stp x26, x27, [x30, #208]\nstp x28, x29, [x30, #224]\n"
        "ldr x0, [sp, #168]\n"
        "str x0, [x30, #240]\n"
        "mrs x0, nzcv\n"
        "str x0, [x30, #248]\n"
        "add x2, x30, #256\n"
        "st1 {v0.2d-v3.2d}, [x2], #64\nst1 {v4.2d-v7.2d}, [x2], #64\n"
        "st1 {v8.2d-v11.2d}, [x2], #64\nst1 {v12.2d-v15.2d}, [x2], #64\n"
        "st1 {v16.2d-v19.2d}, [x2], #64\nst1 {v20.2d-v23.2d}, [x2], #64\n"
        "st1 {v24.2d-v27.2d}, [x2], #64\nst1 {v28.2d-v31.2d}, [x2]\n"
        "ldp x19, x20, [sp, #16]\nldp x21, x22, [sp, #32]\nldp x23, x24, [sp, #48]\n"
        "ldp x25, x26, [sp, #64]\nldp x27, x28, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "ldp x29, x30, [sp], #176\n"
        "ret\n");

static void put(struct state *state, long number, const uint64_t arguments[6]) {
    for (int i = 0; i < 6; i++) state->general[i] = arguments[i];
    state->general[8] = number;
    state->general[31] &= 0xf0000000;
}
#else
#define GENERAL 13
#define VECTORS 32
/* rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12 to r15. */
__asm__(".text\n"
        ".globl call_with\n"
        ".type call_with, @function\n"
        "call_with:\n"
        "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\npush %rsi\n"
        "mov %rdi, %r11\n"
        "movdqu 256(%r11), %xmm0\nmovdqu 272(%r11), %xmm1\nmovdqu 288(%r11), %xmm2\nmovdqu 304(%r11), %xmm3\n"
        "movdqu 320(%r11), %xmm4\nmovdqu 336(%r11), %xmm5\nmovdqu 352(%r11), %xmm6\nmovdqu 368(%r11), %xmm7\n"
        "movdqu 384(%r11), %xmm8\nmovdqu 400(%r11), %xmm9\nmovdqu 416(%r11), %xmm10\nmovdqu 432(%r11), %xmm11\n"
        "movdqu 448(%r11), %xmm12\nmovdqu 464(%r11), %xmm13\nmovdqu 480(%r11), %xmm14\nmovdqu 496(%r11), %xmm15\n"
        "mov (%r11), %rax\nmov 8(%r11), %rdi\nmov 16(%r11), %rsi\nmov 24(%r11), %rdx\nmov 32(%r11), %r10\n"
        "mov 40(%r11), %r8\nmov 48(%r11), %r9\nmov 56(%r11), %rbx\nmov 64(%r11), %rbp\nmov 72(%r11), %r12\n"
        "mov 80(%r11), %r13\nmov 88(%r11), %r14\nmov 96(%r11), %r15\n"
        "syscall\n"
        "mov (%rsp), %r11\n"
        "mov %rax, (%r11)\nmov %rdi, 8(%r11)\nmov %rsi, 16(%r11)\nmov %rdx, 24(%r11)\nmov %r10, 32(%r11)\n"
        "mov %r8, 40(%r11)\nmov %r9, 48(%r11)\nmov %rbx, 56(%r11)\nmov %rbp, 64(%r11)\nmov %r12, 72(%r11)\n"
        "mov %r13, 80(%r11)\nmov %r14, 88(%r11)\nmov %r15, 96(%r11)\n"
        "movdqu %xmm0, 256(%r11)\nmovdqu %xmm1, 272(%r11)\nmovdqu %xmm2, 288(%r11)\nmovdqu %xmm3, 304(%r11)\n"
        "movdqu %xmm4, 320(%r11)\nmovdqu %xmm5, 336(%r11)\nmovdqu %xmm6, 352(%r11)\nmovdqu %xmm7, 368(%r11)\n"
        "movdqu %xmm8, 384(%r11)\nmovdqu %xmm9, 400(%r11)\nmovdqu %xmm10, 416(%r11)\nmovdqu %xmm11, 432(%r11)\n"
        "movdqu %xmm12, 448(%r11)\nmovdqu %xmm13, 464(%r11)\nmovdqu %xmm14, 480(%r11)\nmovdqu %xmm15, 496(%r11)\n"
        "pop %rsi\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"
        "ret\n");

static void put(struct state *state, long number, const uint64_t arguments[6]) {
    state->general[0] = number;
    for (int i = 0; i < 6; i++) state->general[1 + i] = arguments[i];
}
#endif

static uint64_t drawn;
static volatile sig_atomic_t handled;

/* Makes a call with registers that hold random words. Its answer; in a child of a fork the child
   says by its status whether the registers were as before. */
static long made(const char *name, long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    static struct state before, after;
    fill(&before, sizeof before, ++drawn);
    put(&before, number, (uint64_t[6]){a, b, c, d, e, 0});
    call_with(&before, &after);
    int is_child = number == SYS_clone && after.general[0] == 0;
    for (int i = 1; i < GENERAL; i++)
        if (after.general[i] != before.general[i]) {
            fprintf(stderr, "%s: register %d: %llx, was %llx\n", name, i, (unsigned long long)after.general[i],
                    (unsigned long long)before.general[i]);
            _exit(9);
        }
    for (int i = 0; i < VECTORS; i++)
        if (after.vectors[i] != before.vectors[i]) {
            fprintf(stderr, "%s: half %d of the vectors: %llx, was %llx\n", name, i,
                    (unsigned long long)after.vectors[i], (unsigned long long)before.vectors[i]);
            _exit(9);
        }
    if (is_child) _exit(7);
    return (long)after.general[0];
}

static void on_signal(int signal) {
    (void)signal;
    handled++;
    void *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && munmap(at, 1 << 16) == 0);
}

static void round_of_calls(void) {
    const uint64_t here = (uint64_t)AT_FDCWD, none = 0;
    long at = made("mmap", SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK(at > 0);
    memset((void *)at, 5, MIB);
    CHECK(made("mprotect", SYS_mprotect, at, MIB / 2, PROT_READ, 0, 0) == 0);
    CHECK(made("munmap", SYS_munmap, at, MIB, 0, 0, 0) == 0);
    CHECK(made("munmap", SYS_munmap, 1, MIB, 0, 0, 0) == -EINVAL);

    struct timespec soon = {0, 1000};
    uint64_t set = none;
    CHECK(made("ppoll", SYS_ppoll, 0, 0, (uint64_t)&soon, (uint64_t)&set, 8) == 0);
    CHECK(made("ppoll", SYS_ppoll, 0, 1, (uint64_t)&soon, (uint64_t)&set, 8) == -EFAULT);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, &before) == 0 && raise(SIGUSR1) == 0);
    int were = handled;
    CHECK(made("sigsuspend", SYS_rt_sigsuspend, (uint64_t)&set, 8, 0, 0, 0) == -EINTR && handled == were + 1);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(made("sigprocmask", SYS_rt_sigprocmask, SIG_SETMASK, (uint64_t)&set, 0, 8, 0) == 0);
    CHECK(handled == were + 2);

    char link[64];
    CHECK(made("readlinkat", SYS_readlinkat, here, (uint64_t) "/proc/self/exe", (uint64_t)link, sizeof link, 0) > 0);
    CHECK(made("readlinkat", SYS_readlinkat, here, (uint64_t) "/proc/self/cwd", (uint64_t)link, sizeof link, 0) > 0);
    CHECK(made("readlinkat", SYS_readlinkat, here, (uint64_t) "/nowhere", (uint64_t)link, sizeof link, 0) == -ENOENT);
    long fd = made("openat", SYS_openat, here, (uint64_t) "/dev/null", O_RDWR | O_NONBLOCK | O_CLOEXEC, 0, 0);
    CHECK(fd >= 0);
    CHECK(made("fcntl", SYS_fcntl, fd, F_SETFL, O_NONBLOCK, 0, 0) == 0);
    CHECK(made("close", SYS_close, fd, 0, 0, 0, 0) == 0);

    char *words[] = {"word", NULL};
    CHECK(made("execve", SYS_execve, (uint64_t) "/nowhere", (uint64_t)words, (uint64_t)words, 0, 0) == -ENOENT);
    CHECK(made("execve", SYS_execve, (uint64_t) "/dev/null", (uint64_t)words, (uint64_t)words, 0, 0) == -EACCES);
    CHECK(made("execveat", SYS_execveat, here, (uint64_t) "/nowhere", (uint64_t)words, (uint64_t)words, 0) == -ENOENT);
    CHECK(made("getppid", SYS_getppid, 0, 0, 0, 0, 0) == getppid());
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    size_t bytes = (size_t)atoi(argv[1]) * MIB;
    int rounds = argc > 2 ? atoi(argv[2]) : 100;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    char *data = malloc(bytes);
    CHECK(data);
    fill(data, bytes, 1);
    for (int i = 0; i < rounds; i++) {
        round_of_calls();
        if (i % 25 > 0) continue;
        CHECK(differing(data, bytes, 1) == 0);
        int status;
        long child = made("clone", SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    printf("%d rounds, %d signals\n", rounds, (int)handled);
    return 0;
}

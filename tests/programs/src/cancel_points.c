/* Plays the part of a C library that ends a thread by a signal only while the thread is at a
 * system call that has had no effect: the signal's handler compares the interrupted instruction
 * with those of the call (glibc 2.41 and later). Reads from a pipe wait with their memory out, and
 * are left, or get their byte, which comes before the signal, with it, after it or never. No byte
 * is lost, and no thread waits on.
 *
 * usage: cancel_points MIB ROUNDS SEED
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PAGE 4096
/* glibc's signal for cancellation, of which its `sigaction` knows nothing. */
#define CANCEL 32
/* A thread that is not left after this many seconds waits for ever. */
#define PATIENCE_S 60

extern const char point_begins[], point_ends[];
long point(long number, long first, long second, long third);
void left(void);
volatile int cancelled;

/* The library looks at the flag, and then makes the call. Before its end it may be left. */
#ifdef __x86_64__
extern const char restore[];
__asm__(".text\n.globl point, point_begins, point_ends, restore\n"
        "point:\n"
        "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\n"
        "point_begins:\n"
        "cmpl $0, cancelled(%rip)\njne 1f\n"
        "syscall\n"
        "point_ends:\n"
        "ret\n"
        "1: sub $8, %rsp\ncall left\n"
        "restore:\n"
        "mov $15, %eax\nsyscall\n");
#define PC(context) ((context)->uc_mcontext.gregs[REG_RIP])
#define RESTORER 0x04000000
#else
#define restore 0
__asm__(".text\n.globl point, point_begins, point_ends\n"
        "point:\n"
        "mov x8, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nadrp x9, cancelled\n"
        "point_begins:\n"
        "ldr w10, [x9, #:lo12:cancelled]\ncbnz w10, 1f\n"
        "svc #0\n"
        "point_ends:\n"
        "ret\n"
        "1: bl left\n");
#define PC(context) ((context)->uc_mcontext.pc)
#define RESTORER 0
#endif

static char *data;
static size_t bytes;
static int ends[2];
static long rounds, all;
static sem_t begins, over;
static sigjmp_buf away;
static volatile int got;
/* The number of rounds in which the thread has gone to its call. */
static volatile long gone;
static uint64_t state;

static uint64_t any(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

void left(void) {
    siglongjmp(away, 1);
}

static void cancel(int signal, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)PC((ucontext_t *)context);
    (void)signal, (void)info;
    if (at >= (uintptr_t)point_begins && at < (uintptr_t)point_ends)
        left();
}

static void *reads(void *unused) {
    uint64_t page = 12345;
    (void)unused;
    for (long i = 0; i < all; i++) {
        sem_wait(&begins);
        page = page * 6364136223846793005 + 1442695040888963407;
        char *at = data + (page >> 33) % (bytes / PAGE) * PAGE + 77;
        got = 0;
        if (!sigsetjmp(away, 1)) {
            gone = i + 1;
            got = (int)point(SYS_read, ends[0], (long)at, 1);
        }
        CHECK(got == 0 || (got == 1 && *at == (char)i));
        /* A late signal does not end a call of others. */
        CHECK(syscall(SYS_write, -1, at, 1) == -1 && errno == EBADF);
        sem_post(&over);
    }
    /* The last signal may still come. */
    sem_wait(&begins);
    return NULL;
}

static void passes(uint64_t ns) {
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((uint64_t)((now.tv_sec - end.tv_sec) * 1000000000 + now.tv_nsec - end.tv_nsec) < ns);
}

/* Cancels a read, and sends a byte: returns whether it did. */
static int round_of(pid_t thread, long number) {
    char byte = (char)number;
    uint64_t order = any(3), longest = 1000ull << any(10), first = any(longest), second = any(longest);
    sem_post(&begins);
    /* In half of the rounds the thread is about to wait. */
    for (int wait = any(2); wait && gone != number + 1;)
        sched_yield();
    passes(first);
    if (order == 1) {
        CHECK(write(ends[1], &byte, 1) == 1);
        passes(second);
    }
    cancelled = 1;
    CHECK(syscall(SYS_tgkill, getpid(), thread, CANCEL) == 0);
    if (order == 2) {
        passes(second);
        CHECK(write(ends[1], &byte, 1) == 1);
    }
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    if (sem_timedwait(&over, &end) != 0)
        printf("round %ld, order %d: the thread waits on\n", number, (int)order), exit(1);
    cancelled = 0;
    return order != 0;
}

static volatile pid_t thread_id;
static void *begin(void *unused) {
    thread_id = (pid_t)syscall(SYS_gettid);
    return reads(unused);
}

int main(int count, char **words) {
    CHECK(count == 4);
    bytes = (size_t)atoi(words[1]) * MIB, all = atol(words[2]);
    state = strtoull(words[3], NULL, 10) * 2654435761 + 88172645463325252ull;
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED && pipe(ends) == 0);
    for (size_t at = 0; at < bytes; at += PAGE)
        memset(data + at, (int)(at / PAGE) | 1, 64);
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        const void *restorer;
        uint64_t blocked;
    } action = {cancel, SA_SIGINFO | SA_RESTART | RESTORER, restore, 0}, same;
    CHECK(syscall(SYS_rt_sigaction, CANCEL, &action, NULL, 8) == 0);
    CHECK(syscall(SYS_rt_sigaction, CANCEL, NULL, &same, 8) == 0 && same.handler == cancel);
    CHECK(sem_init(&begins, 0, 0) == 0 && sem_init(&over, 0, 0) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, begin, NULL) == 0);
    while (thread_id == 0)
        sched_yield();
    long taken = 0;
    for (; rounds < all; rounds++) {
        int sent = round_of(thread_id, rounds), rest = 0;
        char byte;
        taken += got;
        if (sent && !got)
            CHECK(read(ends[0], &byte, 1) == 1 && byte == (char)rounds);
        CHECK(ioctl(ends[0], FIONREAD, &rest) == 0 && rest == 0);
    }
    CHECK(sem_post(&begins) == 0 && pthread_join(thread, NULL) == 0);
    /* In each run some threads are left, and some get their byte. */
    CHECK(all < 100 || (taken > 0 && taken < all));
    puts("no byte was lost, no thread waits");
    return 0;
}

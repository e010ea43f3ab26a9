/* Handlers that run while their thread waits, with other signals blocked: on which stack they run,
 * how much of it they may use, how they leave, and what the thread finds afterwards.
 *
 * usage: waits MIB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define KIB ((size_t)1 << 10)
#define HERE ((uintptr_t)__builtin_frame_address(0))
#define DEEP (200 * KIB)
#define LEAPS 17000
#define KINDS 4

static const struct timespec ten = {10, 0};
static int queue;
static __thread uintptr_t seen;
static __thread sigjmp_buf back;
static __thread int leaves;
static volatile int over;

/* Uses so much stack. */
static void dig(size_t bytes) {
    volatile char room[KIB];
    memset((void *)room, 0x5a, sizeof room);
    if (bytes > KIB)
        dig(bytes - KIB);
    CHECK(room[0] == 0x5a && room[KIB - 1] == 0x5a);
}

static void on_signal(int number) {
    seen = HERE;
    if (number == SIGUSR1)
        dig(DEEP);
    if (leaves)
        siglongjmp(back, 1);
}

static sigset_t only(int number) {
    sigset_t set;
    sigemptyset(&set);
    if (number)
        sigaddset(&set, number);
    return set;
}

/* Waits until a signal comes that is blocked otherwise. */
static int wait_by(int kind) {
    sigset_t none = only(0);
    struct epoll_event event;
    switch (kind) {
    case 0: return ppoll(NULL, 0, &ten, &none);
    case 1: return pselect(0, NULL, NULL, NULL, &ten, &none);
    case 2: return epoll_pwait(queue, &event, 1, 10000, &none);
    default: return sigsuspend(&none);
    }
}

/* Whether an address lies in the calling thread's stack, below the caller's frame. */
static int below_me(uintptr_t at) {
    pthread_attr_t about;
    void *start;
    size_t bytes;
    CHECK(pthread_getattr_np(pthread_self(), &about) == 0);
    CHECK(pthread_attr_getstack(&about, &start, &bytes) == 0);
    pthread_attr_destroy(&about);
    return at >= (uintptr_t)start && at < HERE && HERE < (uintptr_t)start + bytes;
}

static void own_stack(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        sigset_t before, after;
        sigprocmask(SIG_BLOCK, NULL, &before);
        seen = 0;
        pthread_kill(pthread_self(), SIGUSR1);
        errno = 0;
        CHECK(wait_by(kind) == -1 && errno == EINTR);
        CHECK(seen && below_me(seen));
        sigprocmask(SIG_BLOCK, NULL, &after);
        CHECK(memcmp(&before, &after, 8) == 0);
    }
}

/* On a stack for handlers: its handler, and one that interrupts that handler's own wait. */
static char *aside;
#define ASIDE (512 * KIB)

static int is_aside(uintptr_t at) { return at >= (uintptr_t)aside && at < (uintptr_t)aside + ASIDE; }

static void on_nested(int number) {
    (void)number;
    CHECK(is_aside(HERE));
    for (int kind = 0; kind < KINDS; kind++) {
        seen = 0;
        pthread_kill(pthread_self(), SIGUSR1);
        CHECK(wait_by(kind) == -1 && errno == EINTR);
        CHECK(seen && is_aside(seen) && seen < HERE);
    }
    seen = HERE;
}

static void stack_aside(void) {
    stack_t given = {.ss_sp = aside, .ss_size = ASIDE}, without = {.ss_flags = SS_DISABLE};
    struct sigaction nested = {.sa_handler = on_nested, .sa_flags = SA_ONSTACK, .sa_mask = only(SIGUSR1)}, old;
    CHECK(sigaltstack(&given, NULL) == 0 && sigaction(SIGALRM, &nested, &old) == 0);
    seen = 0;
    pthread_kill(pthread_self(), SIGALRM);
    CHECK(wait_by(0) == -1 && errno == EINTR && is_aside(seen));
    CHECK(sigaction(SIGALRM, &old, NULL) == 0 && sigaltstack(&without, NULL) == 0);
}

/* Leaves by long jumps, from all kinds of waits. */
static void leaps(int count) {
    leaves = 1;
    for (volatile int i = 0; i < count; i++) {
        if (sigsetjmp(back, 1) == 0) {
            pthread_kill(pthread_self(), SIGALRM);
            wait_by(i % KINDS);
            CHECK(!"reached");
        }
    }
    leaves = 0;
}

static void *waits(void *result) {
    sigset_t all;
    sigfillset(&all);
    long count = 0;
    while (!over) {
        struct timespec some = {0, 20000000};
        CHECK(ppoll(NULL, 0, &some, &all) == 0);
        count++;
    }
    *(long *)result = count;
    return NULL;
}

#ifdef __x86_64__
/* The registers and the bytes below the stack pointer stay, whatever the handler does. */
__attribute__((noinline)) static int keeps_registers(void) {
    sigset_t none = only(0);
    long kept = -1, answer;
    pthread_kill(pthread_self(), SIGUSR1);
    __asm__ volatile(
        "lea -256(%%rsp), %%rsp\n"
        "movq $0x1234, -8(%%rsp)\n movq $0x5678, -128(%%rsp)\n"
        "xor %%edi, %%edi\n xor %%esi, %%esi\n mov %[time], %%rdx\n mov %[set], %%r10\n"
        "mov $8, %%r8d\n mov $0x99, %%r9d\n mov $0x77, %%ebx\n mov $0x66, %%r12d\n"
        "movq %%rbx, %%xmm9\n mov %[number], %%eax\n stc\n syscall\n"
        "setc %%r11b\n movzx %%r11b, %%r11\n sub $1, %%r11\n"
        "or %%rdi, %%r11\n or %%rsi, %%r11\n xor %[time], %%rdx\n or %%rdx, %%r11\n"
        "xor %[set], %%r10\n or %%r10, %%r11\n xor $8, %%r8\n or %%r8, %%r11\n"
        "xor $0x99, %%r9\n or %%r9, %%r11\n xor $0x77, %%rbx\n or %%rbx, %%r11\n"
        "xor $0x66, %%r12\n or %%r12, %%r11\n movq %%xmm9, %%rcx\n xor $0x77, %%rcx\n"
        "or %%rcx, %%r11\n movq -8(%%rsp), %%rcx\n xor $0x1234, %%rcx\n or %%rcx, %%r11\n"
        "movq -128(%%rsp), %%rcx\n xor $0x5678, %%rcx\n or %%rcx, %%r11\n"
        "lea 256(%%rsp), %%rsp\n"
        : "=&a"(answer)
        : [time] "r"((long)&ten), [set] "r"((long)&none), [number] "i"(SYS_ppoll)
        : "rdi", "rsi", "rdx", "r10", "r8", "r9", "rbx", "r12", "r11", "rcx", "xmm9", "memory", "cc");
    __asm__ volatile("mov %%r11, %0" : "=r"(kept));
    return answer == -EINTR && kept == 0;
}
#else
static int keeps_registers(void) { return 1; }
#endif

/* An open that waits for a pipe's other end ends by a signal. */
static void opens(void) {
    char name[64];
    snprintf(name, sizeof name, "waits.%d", (int)getpid());
    CHECK(mkfifo(name, 0600) == 0);
    struct {
        uint64_t flags, mode, resolve;
    } how = {O_WRONLY, 0, 0};
    sigset_t alarm_ = only(SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm_, NULL);
    struct itimerspec soon = {{0, 20000000}, {0, 20000000}}, never = {{0, 0}, {0, 0}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
    errno = 0;
    CHECK(syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how) == -1 && errno == EINTR);
    CHECK(syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_DIRECT) == -1 && errno == EINTR);
    CHECK(timer_settime(timer, 0, &never, NULL) == 0 && timer_delete(timer) == 0);
    sigprocmask(SIG_BLOCK, &alarm_, NULL);
    CHECK(unlink(name) == 0);
}

/* Execs that fail while signals come, whose handler sometimes leaves. */
static void execs(void) {
    char name[64];
    snprintf(name, sizeof name, "waits.text.%d", (int)getpid());
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0700);
    CHECK(fd >= 0 && write(fd, "\177ELF no program\n", 16) == 16 && close(fd) == 0);
    sigset_t alarm_ = only(SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm_, NULL);
    struct itimerspec often = {{0, 100000}, {0, 100000}}, never = {{0, 0}, {0, 0}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    char *arguments[] = {name, "argument", NULL};
    for (volatile int i = 0; i < 2000; i++) {
        if (sigsetjmp(back, 1) == 0) {
            leaves = i % 2;
            errno = 0;
            CHECK(execve(name, arguments, arguments) == -1 && errno == ENOEXEC);
        }
        leaves = 0;
    }
    CHECK(timer_settime(timer, 0, &never, NULL) == 0 && timer_delete(timer) == 0);
    sigprocmask(SIG_BLOCK, &alarm_, NULL);
    CHECK(unlink(name) == 0);
}

/* Closes nothing, again and again: a thread is cancelled there, too. */
static void *closes(void *none) {
    for (;;)
        CHECK(close(-1) == -1 && errno == EBADF);
    return none;
}

static void cancelled(void) {
    pthread_t thread;
    void *answer;
    CHECK(pthread_create(&thread, NULL, closes, NULL) == 0 && pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
}

static void *all_in_a_thread(void *none) {
    own_stack();
    leaps(100);
    CHECK(keeps_registers());
    return none;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    setvbuf(stdout, NULL, _IONBF, 0);
    size_t bytes = (size_t)atoi(argv[1]) << 20;
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += 4096)
        fill(data + at, 4096, at);
    aside = mmap(NULL, ASIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(aside != MAP_FAILED && (queue = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    sigset_t both = only(SIGUSR1);
    sigaddset(&both, SIGALRM);
    CHECK(pthread_sigmask(SIG_BLOCK, &both, NULL) == 0);
    /* Others wait meanwhile: their registers must survive. */
    pthread_t threads[3];
    long counts[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, waits, &counts[i]) == 0);
    own_stack();
    puts("handlers ran on the thread's own stack");
    stack_aside();
    puts("handlers ran on a stack aside");
    CHECK(keeps_registers());
    leaps(LEAPS);
    puts("handlers left");
    /* musl's threads have small stacks. */
    pthread_attr_t large;
    CHECK(pthread_attr_init(&large) == 0 && pthread_attr_setstacksize(&large, 1024 * KIB) == 0);
    CHECK(pthread_create(&threads[2], &large, all_in_a_thread, NULL) == 0 && pthread_join(threads[2], NULL) == 0);
    opens();
    execs();
    puts("open and exec were interrupted");
    cancelled();
    puts("close was cancelled");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        own_stack();
        leaps(50);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0 && counts[i] > 0);
    for (size_t at = 0; at < bytes; at += 4096)
        CHECK(differing(data + at, 4096, at) == 0);
    puts("all right");
    return 0;
}

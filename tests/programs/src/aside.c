/* A handler makes a call with paged memory while its thread waits in another. The handler runs on a
 * stack that lies above the thread's, and of which the kernel does not know while the handler runs
 * (SS_AUTODISARM). First, the thread names a buffer by memory behind its stack.
 * Usage: aside MIB. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif
#define SIZE (256 << 10)
/* The thread's stack, and above it the one for handlers. */
static char *data, *stacks;
static volatile int ticks, wrong;
static int ends[2];

static void tick(int signal) {
    (void)signal;
    if (syscall(SYS_write, -1, data + 5000, 10) == -1 && errno == EBADF)
        ticks++;
    else
        wrong++;
}

/* The last bytes that are mapped behind a stack name a buffer, and then bytes of which half are. */
static void names_at(char *end) {
    struct iovec buffer = {data + 9000, 8};
    int zeros = open("/dev/zero", O_RDONLY);
    memcpy(end - sizeof buffer, &buffer, sizeof buffer);
    if (syscall(SYS_readv, zeros, end - sizeof buffer, 1) != 8 || data[9000])
        wrong++, printf("a vector at the end: %s\n", strerror(errno));
    if (syscall(SYS_readv, zeros, end - sizeof buffer / 2, 1) != -1 || errno != EFAULT)
        wrong++, puts("a vector beyond the end is read");
    close(zeros);
}

static void *waits(void *argument) {
    stack_t stack = {.ss_sp = stacks + SIZE, .ss_size = SIZE, .ss_flags = SS_AUTODISARM};
    sigset_t alarm;
    (void)argument;
    names_at(stacks + 2 * SIZE);
    sigaltstack(&stack, 0);
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    for (int i = 0; i < 20; i++) {
        char *in = data + (1 << 20) * (i + 1);
        pthread_sigmask(SIG_UNBLOCK, &alarm, 0);
        /* Not more: a late thread would read two messages at once. */
        long got = syscall(SYS_read, ends[0], in, 17);
        pthread_sigmask(SIG_BLOCK, &alarm, 0);
        if (got != 17 || strcmp(in, "after some ticks"))
            wrong++, printf("a read: %ld, %s\n", got, strerror(errno));
    }
    return 0;
}

int main(int count, char **arguments) {
    size_t bytes = count > 1 ? strtoul(arguments[1], 0, 10) << 20 : 0;
    stacks = mmap(0, 2 * SIZE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    data = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes < 32 << 20 || stacks == MAP_FAILED || data == MAP_FAILED || pipe(ends))
        return 2;
    mprotect(stacks + 2 * SIZE, 4096, PROT_NONE);
    memset(data, 1, bytes);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, 0);
    sigaction(SIGALRM, &action, 0);
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks, SIZE);
    pthread_create(&thread, &attributes, waits, 0);
    struct itimerval each = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &each, 0);
    for (int i = 0; i < 20; i++) {
        usleep(20000);
        /* Pages that no call holds leave. */
        for (size_t at = 0; at < bytes; at += 4096)
            (void)*(volatile char *)(data + at);
        write(ends[1], "after some ticks", 17);
    }
    pthread_join(thread, 0);
    printf("%d wrong, %s\n", wrong, ticks ? "with ticks" : "no ticks");
    return wrong || !ticks;
}

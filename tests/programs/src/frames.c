/* Signals, and calls on paged memory, while a thread runs on a stack in the heap whose next block
   is paged out. Usage: frames MIB */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "raw_call.h"

#define STACK (1 << 20)
#define BLOCK (256 << 10)

static char *data;
static size_t bytes;
static int ends[2];
static volatile int signals, right;
static ucontext_t first, second;

static void on_signal(int signal) {
    (void)signal;
    signals++;
}
static void walk(char *from, char *to) {
    for (int turn = 0; turn < 2; turn++)
        for (char *at = from; at < to; at += 4096)
            (void)*(volatile char *)at;
}

/* Nothing of the block below the stack pointer was touched on this stack. */
__attribute__((noinline)) static void at_the_edge(long signalled) {
    char *here = __builtin_frame_address(0);
    char *edge = (char *)(((uintptr_t)here - BLOCK - 8192) & ~(uintptr_t)(BLOCK - 1));
    volatile char *low = alloca(here - edge - 512);
    *low = 1;
    if (signalled)
        raw_call(SYS_tgkill, getpid(), raw_call(SYS_gettid, 0, 0, 0), SIGUSR1);
    else
        right += raw_call(SYS_read, ends[0], (long)data, 1) == 1;
}
static void begin(int one, int two) {
    walk(data, data + bytes / 2);
    at_the_edge(one);
    walk(data, data + bytes / 2);
    at_the_edge(two);
}
static void *thread(void *unused) {
    begin(1, 0);
    return unused;
}

int main(int count, char **arguments) {
    if (count != 2 || pipe(ends))
        return 2;
    bytes = strtoul(arguments[1], NULL, 10) << 20;
    data = malloc(bytes);
    memset(data, 1, bytes);
    write(ends[1], "12", 2);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    char *stack = data + bytes / 3 * 2;
    getcontext(&second);
    second.uc_stack.ss_sp = stack;
    second.uc_stack.ss_size = STACK;
    second.uc_link = &first;
    makecontext(&second, (void (*)(void))begin, 2, 1, 0);
    walk(data, data + bytes);
    swapcontext(&first, &second);
    printf("on a context's stack: %d signals, %d calls\n", signals, right);
    stack = (char *)(((uintptr_t)data + bytes / 4 * 3) & ~4095ul);
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    walk(data, data + bytes);
    if (pthread_create(&id, &attributes, thread, NULL))
        return 2;
    pthread_join(id, NULL);
    printf("on a thread's stack: %d signals, %d calls\n", signals, right);
    return 0;
}

/* Threads begin on stacks from before an adoption, and a child that borrows the memory on one in a
 * large mapping: deep there, where nobody has touched the stack, they make calls with memory that
 * is out, and get signals.
 * usage: adopted_stacks FILE      goes on once FILE exists; status 0 if all was right */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Stacks whose ends have all distances from the ends of blocks. */
enum { THREADS = 8, STACK = (2 << 20) + 4096, DATA = 48 << 20, DEEP = 512 << 10, LENT = 256 << 10 };

static char *data;
static int zeros, wrong;
static volatile sig_atomic_t handled[THREADS];
static _Thread_local int me;
static pthread_barrier_t all;

static void handle(int signal) {
    (void)signal;
    handled[me]++;
}

/* A call whose buffer is out, or nearly always. */
static void call(int number) {
    char *buffer = data + (size_t)number * (DATA / 16) + 12345;
    memset(buffer, 1, 100);
    for (size_t at = 0; at < DATA; at += 4096)
        ((volatile char *)data)[at]++;
    if (read(zeros, buffer, 100) != 100 || buffer[99])
        __sync_fetch_and_add(&wrong, 1);
}

__attribute__((noinline)) static void deep(void) {
    volatile char room[DEEP];
    room[0] = 1;
    call(me);
    pthread_kill(pthread_self(), SIGUSR2);
    if (!handled[me] || room[0] != 1)
        __sync_fetch_and_add(&wrong, 1);
}

static void *short_life(void *number) {
    me = (intptr_t)number;
    pthread_barrier_wait(&all);
    return NULL;
}

static void *work(void *number) {
    me = (intptr_t)number;
    pthread_barrier_wait(&all);
    deep();
    return NULL;
}

static void each(void *(*begin)(void *)) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &attributes, begin, (void *)i))
            __sync_fetch_and_add(&wrong, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int lent(void *number) {
    call((intptr_t)number);
    _exit(wrong);
}

int main(int count, char **arguments) {
    int status;
    if (count != 2)
        return 2;
    data = mmap(NULL, DATA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 3, DATA);
    zeros = open("/dev/zero", O_RDONLY);
    signal(SIGUSR2, handle);
    pthread_barrier_init(&all, NULL, THREADS);
    each(short_life);
    puts("ready"), fflush(stdout);
    while (access(arguments[1], F_OK))
        usleep(10000);
    for (int round = 0; round < 3; round++)
        each(work);
    char *top = data + DATA / 2;
    for (size_t at = 0; at < DATA; at += 4096)
        ((volatile char *)data)[at]++;
    pid_t child = clone(lent, top, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)12);
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        wrong++;
    printf("%d wrong\n", wrong);
    return wrong != 0;
}

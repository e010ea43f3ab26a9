/* A thread handles a signal on a stack for that until a file exists; later it gets a signal deep on
 * its usual stack.
 * usage: adopted_aside FILE OTHER      goes on once OTHER exists; status 0 if all was right */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DATA = 48 << 20, STACK = 1 << 20, DEEP = 3 << 20 };

static char *data;
static const char *ends, *goes_on;
static volatile sig_atomic_t count_of;

static void touch_all(void) {
    for (size_t at = 0; at < DATA; at += 4096)
        ((volatile char *)data)[at]++;
}

static void aside(int signal) {
    (void)signal;
    puts("ready"), fflush(stdout);
    while (access(ends, F_OK))
        usleep(1000);
}

static void handle(int signal) {
    count_of += signal == SIGUSR2;
}

__attribute__((noinline)) static int deep(void) {
    volatile char room[DEEP];
    room[0] = 1;
    pthread_kill(pthread_self(), SIGUSR2);
    return room[0];
}

static void *work(void *stack) {
    stack_t other = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction action = {.sa_handler = aside, .sa_flags = SA_ONSTACK};
    sigaltstack(&other, NULL);
    sigaction(SIGUSR1, &action, NULL);
    pthread_kill(pthread_self(), SIGUSR1);
    puts("over"), fflush(stdout);
    while (access(goes_on, F_OK)) {
        touch_all();
        usleep(1000);
    }
    deep();
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count != 3)
        return 2;
    ends = arguments[1], goes_on = arguments[2];
    data = mmap(NULL, DATA + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 3, DATA);
    signal(SIGUSR2, handle);
    pthread_create(&thread, NULL, work, data + DATA);
    pthread_join(thread, NULL);
    return count_of != 1;
}

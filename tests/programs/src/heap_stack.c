/* The first thread runs on a stack within a large mapping, until SIGUSR1 arrives there: status
 * 0. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { ALL = 16 << 20, STACK = 1 << 20 };

static ucontext_t within, before;

static void end(int signal) {
    (void)signal;
    _exit(0);
}

static void run(void) {
    signal(SIGUSR1, end);
    puts("ready"), fflush(stdout);
    for (;;)
        pause();
}

int main(void) {
    char *data = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 1, ALL);
    getcontext(&within);
    within.uc_stack.ss_sp = data + ALL / 2;
    within.uc_stack.ss_size = STACK;
    within.uc_link = &before;
    makecontext(&within, run, 0);
    return swapcontext(&before, &within) != 0;
}

/* Handlers of signals that come while the program allocates: they map memory, fork, and end the
 * process. All that is allowed in one.
 *
 * usage: handlers MIB
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define ENDED 42

static volatile sig_atomic_t handled;
static long period_us;

/* The next signal, which a handler asks for when it ends: one that takes longer than the period
 * leaves the program time all the same. */
static void next(void)
{
    struct itimerval timer = {{0, 0}, {0, period_us}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void maps(int signal)
{
    (void)signal;
    char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    at[0] = at[MIB - 1] = 1;
    CHECK(munmap(at, MIB) == 0);
    handled++;
    next();
}

static void forks(int signal)
{
    (void)signal;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    handled++;
    next();
}

static void ends(int signal)
{
    (void)signal;
    _exit(ENDED);
}

static void every(long us, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    period_us = us;
    next();
}

/* Allocates small and large until `rounds` are over, or for good if there are none. */
static void churn(size_t rounds)
{
    void *kept[64] = {0};
    for (size_t round = 0; rounds == 0 || round < rounds; round++) {
        size_t bytes = round % 16 == 0 ? 2 * MIB : 16 + round * 37 % 3000;
        void **place = &kept[round % 64];
        free(*place);
        *place = malloc(bytes);
        CHECK(*place != NULL);
        fill(*place, bytes < 4096 ? bytes : 4096, round);
    }
    for (size_t i = 0; i < 64; i++)
        free(kept[i]);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * MIB;
    char *data = malloc(bytes);
    CHECK(data != NULL);
    fill(data, bytes, 1);
    every(500, maps);
    churn(60000);
    every(20000, forks);
    for (int round = 0; handled < 40 || round == 0; round++)
        churn(5000);
    every(0, SIG_IGN);
    for (long round = 0; round < 60; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            every(1000 + round * 37, ends);
            churn(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ENDED);
    }
    CHECK(differing(data, bytes, 1) == 0);
    puts("handlers map, fork and exit: ok");
    return 0;
}

/* A parent and its children, which share a budget, make calls that name much memory at the same
   time: calls that can be divided, and with "whole" calls that cannot, too. Usage: shared_calls MIB
   CHILDREN CALLS SEED [whole]. Each process uses MIB, in 2 threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 2
#define PAGE 4096ul
#define MOST (2ul << 20)
/* A call that cannot be divided touches this much. */
#define WHOLE (1ul << 20)

static unsigned char *data;
static size_t bytes;
static long calls;
static uint64_t seeds;
static int number, has_whole;

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed;
}
/* The bytes that a page has: the half of each page that a thread owns names the page. */
static void fill(unsigned char *at, size_t len, uint64_t name) {
    for (size_t page = 0; page < len; page += PAGE)
        memcpy(at + page, &name, sizeof name), name++;
}
static int differs(const unsigned char *at, size_t len, uint64_t name) {
    int wrong = 0;
    for (size_t page = 0; page < len; page += PAGE, name++)
        wrong += memcmp(at + page, &name, sizeof name) != 0;
    return wrong;
}

static int said(const char *what, long answer, size_t len) {
    if (answer == (long)len)
        return 0;
    fprintf(stderr, "process %d: %s of %zu bytes: %ld, %s\n", number, what, len, answer, strerror(errno));
    return 1;
}

static void *work(void *argument) {
    size_t part = bytes / THREADS & ~(PAGE - 1);
    unsigned char *own = data + (uintptr_t)argument * part;
    uint64_t seed = seeds * 1000 + (uint64_t)number * 10 + (uintptr_t)argument + 1;
    char name[] = "/tmp/shared-calls.XXXXXX";
    int file = mkstemp(name);
    long wrong = file < 0;
    unlink(name);
    for (long call = 0; call < calls; call++) {
        size_t len = (next(&seed) % (MOST / PAGE) + 1) * PAGE;
        size_t from = next(&seed) % ((part / 2 - len) / PAGE) * PAGE;
        size_t to = part / 2 + next(&seed) % ((part / 2 - len) / PAGE) * PAGE;
        uint64_t tag = next(&seed);
        fill(own + from, len, tag);
        if (has_whole && next(&seed) % 4 == 0) {
            size_t some = len < WHOLE ? len : WHOLE;
            wrong += said("getrandom", getrandom(own + to, some, 0), some);
        }
        if (next(&seed) % 2) {
            wrong += said("pwrite", pwrite(file, own + from, len, 0), len);
            wrong += said("pread", pread(file, own + to, len, 0), len);
        } else {
            struct iovec there = {own + from, len}, here = {own + to, len};
            wrong += said("process_vm_readv", process_vm_readv(getpid(), &here, 1, &there, 1, 0), len);
        }
        wrong += differs(own + to, len, tag);
    }
    close(file);
    return (void *)wrong;
}

static int see(void) {
    pthread_t threads[THREADS];
    int wrong = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        wrong += pthread_create(&threads[i], NULL, work, (void *)i) != 0;
    for (int i = 0; i < THREADS; i++) {
        void *found = NULL;
        pthread_join(threads[i], &found);
        wrong += found != NULL;
    }
    return wrong;
}

int main(int count, char **arguments) {
    if (count < 5)
        return 2;
    has_whole = count > 5;
    bytes = strtoul(arguments[1], NULL, 10) << 20;
    int children = atoi(arguments[2]), wrong = 0;
    calls = atol(arguments[3]);
    seeds = strtoul(arguments[4], NULL, 10) + 1;
    data = malloc(bytes);
    for (size_t at = 0; at < bytes; at += PAGE)
        memset(data + at, (int)(at / PAGE), PAGE);
    for (int i = 1; i <= children; i++) {
        pid_t child = fork();
        if (child < 0)
            return perror("fork"), 2;
        if (!child) {
            number = i;
            _exit(see());
        }
    }
    wrong += see();
    for (int i = 0; i < children; i++) {
        int status = -1;
        while (wait(&status) < 0 && errno == EINTR)
            ;
        wrong += status != 0;
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}

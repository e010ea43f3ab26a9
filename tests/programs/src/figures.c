/* Programs of people-figures. Each prints the seconds of what is measured, and a sum.

   figures scan MIB PASSES          fills an array, and then reads it from end to end PASSES times
   figures random MIB TOUCHES       fills an array, and then changes words of it in random order
   figures workers COUNT MIB PASSES workers by fork, each of which does `scan`
   figures turns COUNT MIB SECONDS  workers by fork, each with an array; in turns, one goes about its
                                    own and the others sleep; prints a line when a turn begins */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static uint64_t *filled(size_t words, uint64_t seed) {
    uint64_t *array = malloc(words * 8), state = seed * 2 + 88172645463325252u;
    if (!array) {
        perror("malloc");
        exit(3);
    }
    for (size_t i = 0; i < words; i++) array[i] = next(&state);
    return array;
}

static uint64_t scan(const uint64_t *array, size_t words, int passes) {
    uint64_t all = 0;
    for (int pass = 0; pass < passes; pass++)
        for (size_t i = 0; i < words; i++) all = all * 31 + array[i];
    return all;
}

static uint64_t touch(uint64_t *array, size_t words, size_t touches, uint64_t *state) {
    uint64_t all = 0;
    for (size_t i = 0; i < touches; i++) {
        uint64_t value = next(state);
        all += array[value % words] ^= value;
    }
    return all;
}

static int workers(int count, size_t words, int passes) {
    for (int worker = 0; worker < count; worker++) {
        fflush(stdout);
        if (!fork()) {
            printf("%d %016llx\n", worker, (unsigned long long)scan(filled(words, (uint64_t)worker), words, passes));
            return 0;
        }
    }
    int bad = 0, status;
    while (count-- > 0)
        if (wait(&status) < 0 || status != 0) bad = 1;
    return bad;
}

static int turns(int count, size_t words, double seconds) {
    /* The worker whose turn it is, -2 while they fill, and how many have filled. */
    volatile int *whose = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (whose == MAP_FAILED) return 1;
    whose[0] = -2;
    int pids[count];
    for (int worker = 0; worker < count; worker++) {
        fflush(stdout);
        if (!(pids[worker] = fork())) {
            uint64_t *array = filled(words, (uint64_t)worker), state = (uint64_t)worker + 7;
            __sync_fetch_and_add(&whose[1], 1);
            while (whose[0] != count) {
                if (whose[0] == worker)
                    touch(array, words, 256, &state);
                else
                    usleep(5000);
            }
            _exit(0);
        }
    }
    while (whose[1] < count) usleep(20000);
    for (int worker = 0; worker < count; worker++) {
        printf("turn %d\n", pids[worker]);
        fflush(stdout);
        whose[0] = worker;
        usleep((useconds_t)(seconds * 1e6));
    }
    whose[0] = count;
    int bad = 0, status;
    while (count-- > 0)
        if (wait(&status) < 0 || status != 0) bad = 1;
    return bad;
}

int main(int count, char **arguments) {
    if (count == 5) {
        int processes = atoi(arguments[2]);
        size_t words = ((size_t)atoi(arguments[3]) << 20) / 8;
        if (!strcmp(arguments[1], "workers")) return workers(processes, words, atoi(arguments[4]));
        if (!strcmp(arguments[1], "turns")) return turns(processes, words, atof(arguments[4]));
    }
    if (count != 4) return 2;
    size_t words = ((size_t)atoi(arguments[2]) << 20) / 8;
    uint64_t *array = filled(words, 5), state = 11, found;
    double began = now();
    if (!strcmp(arguments[1], "scan"))
        found = scan(array, words, atoi(arguments[3]));
    else
        found = touch(array, words, (size_t)atoi(arguments[3]), &state);
    printf("%.4f %016llx\n", now() - began, (unsigned long long)found);
    return 0;
}

/* random MIB THREADS ROUNDS
 *
 * Threads read, write and check words at random places of a shared allocation. A word holds its
 * index and how often it was written; its thread alone writes it, and knows how often. Threads
 * share pages, so that a page is written by one while it leaves memory for another's sake.
 * Every few rounds a stretch goes through system calls, which touch memory from inside the kernel.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { STRETCH_WORDS = 2048 };

static uint64_t *words;
static size_t words_each, threads, rounds;

struct worker {
    pthread_t thread;
    size_t number;
    /* How often each word of this thread was written, modulo 256. */
    uint8_t *writes;
};

static uint64_t content(size_t index, unsigned writes) { return word(writes, index); }

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Copies a stretch of words through a pipe and compares. */
static void through_a_pipe(const int *pipe_ends, size_t number, size_t first, const uint8_t *writes) {
    ssize_t bytes = STRETCH_WORDS * sizeof *words;
    uint64_t *copy = malloc(bytes);
    CHECK(copy != NULL);
    CHECK(write(pipe_ends[1], words + first, bytes) == bytes);
    for (ssize_t got = 0; got < bytes;) {
        ssize_t more = read(pipe_ends[0], (char *)copy + got, bytes - got);
        CHECK(more > 0);
        got += more;
    }
    for (size_t i = 0; i < STRETCH_WORDS; i++) {
        size_t index = first + i;
        if (index % threads == number)
            CHECK(copy[i] == content(index, writes[index / threads]));
    }
    free(copy);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    uint64_t state = word(99, worker->number + 1) | 1;
    int pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0);
    for (size_t round = 0; round < rounds; round++) {
        size_t mine = next(&state) % words_each;
        size_t index = mine * threads + worker->number;
        CHECK(words[index] == content(index, worker->writes[mine]));
        if (next(&state) % 2)
            words[index] = content(index, ++worker->writes[mine]);
        if (round % 512 == 0)
            through_a_pipe(pipe_ends, worker->number, next(&state) % (words_each * threads - STRETCH_WORDS), worker->writes);
    }
    for (size_t mine = 0; mine < words_each; mine++) {
        size_t index = mine * threads + worker->number;
        CHECK(words[index] == content(index, worker->writes[mine]));
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    threads = strtoull(argv[2], NULL, 10);
    rounds = strtoull(argv[3], NULL, 10);
    CHECK(threads > 0 && threads <= 16);
    words_each = bytes / 8 / threads;
    struct worker workers[16];
    words = malloc(bytes);
    CHECK(words != NULL);
    for (size_t index = 0; index < words_each * threads; index++)
        words[index] = content(index, 0);
    for (size_t i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].writes = calloc(words_each, 1);
        CHECK(workers[i].writes != NULL);
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (size_t i = 0; i < threads; i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
        free(workers[i].writes);
    }
    free(words);
    puts("every word was right");
    return 0;
}

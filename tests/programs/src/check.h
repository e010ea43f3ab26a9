/* Checks for the test programs: what did not hold is printed, and the program fails. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: does not hold: %s (errno: %s)\n", __FILE__, __LINE__, #condition,        \
                    strerror(errno));                                                                        \
            _exit(9);                                                                                        \
        }                                                                                                    \
    } while (0)

/* The word that belongs at an index of a series. */
static inline uint64_t word(uint64_t series, uint64_t index) {
    uint64_t x = series * 0x9e3779b97f4a7c15ull + index;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 27);
}

static inline void fill(void *at, size_t bytes, uint64_t series) {
    uint64_t *words = (uint64_t *)at;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = word(series, i);
}

/* Waits until the file exists whose name WAITS_FOR has: somebody adopts the program meanwhile. */
static inline void wait_if_asked(void) {
    const char *path = getenv("WAITS_FOR");
    while (path != NULL && access(path, F_OK) != 0)
        usleep(10000);
}

/* The number of words that are not as filled. */
static inline size_t differing(const void *at, size_t bytes, uint64_t series) {
    const uint64_t *words = (const uint64_t *)at;
    size_t n = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        n += words[i] != word(series, i);
    return n;
}

/* The number of words that are not zero. */
static inline size_t not_zero(const void *at, size_t bytes) {
    const uint64_t *words = (const uint64_t *)at;
    size_t n = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        n += words[i] != 0;
    return n;
}
#endif

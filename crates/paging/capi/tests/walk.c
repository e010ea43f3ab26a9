/*
 * Random calls of all of terapage.h by several threads, against a model: what each allocation and
 * mapping holds, and what each file.
 *
 *     walk DIRECTORY STEPS [SEED]     the seed is printed
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <terapage.h>
#include <unistd.h>

#include "check.h"

#define FAILS(call, number)                        \
    do {                                           \
        errno = 0;                                 \
        CHECK(call);                               \
        CHECK(errno == (number) && *tera_error()); \
    } while (0)

enum { THREADS = 3, ALLOCATIONS = 30, MAPPINGS = 4, PAGE = 4096, MIB = 1 << 20, FILE_MAX = 4 * MIB };

struct allocation {
    unsigned char *at, *model;
    size_t len;
};

struct mapping {
    unsigned char *at, *model;
    /* The file has the first `bytes` of `len`. */
    size_t offset, len, bytes;
    int writable;
};

struct walker {
    uint64_t state;
    struct allocation allocations[ALLOCATIONS];
    /* Of one file, no part of which is mapped twice where it can be written. */
    struct mapping mappings[MAPPINGS];
    int fd, direct;
    char name[64];
    /* What the file holds. */
    unsigned char *file;
    size_t file_len;
    int is_child;
};

static const char *directory;
static size_t steps;

static uint64_t chance(struct walker *walker, uint64_t of)
{
    walker->state = walker->state * 6364136223846793005u + 1442695040888963407u;
    return (walker->state >> 33) % of;
}

/* The same bytes in both: zeros, one value, or anything. */
static void fill(struct walker *walker, unsigned char *at, unsigned char *model, size_t len)
{
    uint64_t kind = chance(walker, 3), value = chance(walker, 1 << 30) | 1;
    for (size_t byte = 0; byte < len; byte++) {
        if (kind == 2) {
            value ^= value << 13;
            value ^= value >> 7;
            value ^= value << 17;
        }
        model[byte] = kind == 0 ? 0 : (unsigned char)value;
    }
    memcpy(at, model, len);
}

static void part(struct walker *walker, size_t len, size_t *from, size_t *count)
{
    *from = chance(walker, len);
    *count = 1 + chance(walker, chance(walker, 2) ? 100 : 200000);
    if (*count > len - *from)
        *count = len - *from;
}

static void check_allocation(const struct allocation *allocation)
{
    CHECK(memcmp(allocation->at, allocation->model, allocation->len) == 0);
}

static void check_all(struct walker *walker)
{
    for (int index = 0; index < ALLOCATIONS; index++)
        if (walker->allocations[index].at)
            check_allocation(&walker->allocations[index]);
    for (int index = 0; index < MAPPINGS; index++) {
        struct mapping *mapping = &walker->mappings[index];
        CHECK(!mapping->at || memcmp(mapping->at, mapping->model, mapping->len) == 0);
    }
}

/* The file has what was synced, and nothing else. */
static void check_file(struct walker *walker)
{
    unsigned char *bytes = aligned_alloc(PAGE, FILE_MAX + PAGE);
    int fd = walker->direct >= 0 && chance(walker, 2) ? walker->direct : walker->fd;
    CHECK(bytes && pread(fd, bytes, FILE_MAX + PAGE, 0) == (ssize_t)walker->file_len);
    CHECK(memcmp(bytes, walker->file, walker->file_len) == 0);
    free(bytes);
}

static void forget(struct allocation *allocation)
{
    free(allocation->model);
    memset(allocation, 0, sizeof *allocation);
}

static void allocate(struct walker *walker)
{
    struct allocation *allocation = &walker->allocations[chance(walker, ALLOCATIONS)];
    size_t len = chance(walker, 4) ? chance(walker, 6000) : chance(walker, MIB), old = allocation->len;
    if (!allocation->at) {
        int zeros = chance(walker, 2);
        *allocation = (struct allocation){zeros ? tera_calloc(len, 1) : tera_malloc(len), calloc(len + 1, 1), len};
        CHECK(allocation->at && (size_t)allocation->at % 16 == 0);
        if (zeros)
            check_allocation(allocation);
        fill(walker, allocation->at, allocation->model, len);
        return;
    }
    check_allocation(allocation);
    switch (chance(walker, 3)) {
    case 0:
        CHECK(tera_free(allocation->at) == 0);
        forget(allocation);
        break;
    case 1:
        allocation->at = tera_realloc(allocation->at, len);
        allocation->model = realloc(allocation->model, len + 1);
        CHECK(allocation->at && (size_t)allocation->at % 16 == 0);
        allocation->len = old < len ? old : len;
        check_allocation(allocation);
        allocation->len = len;
        if (len > old)
            fill(walker, allocation->at + old, allocation->model + old, len - old);
        break;
    default:
        fill(walker, allocation->at, allocation->model, old);
    }
}

static void map(struct walker *walker, struct mapping *mapping)
{
    size_t offset = chance(walker, walker->file_len) / PAGE * PAGE, rest = walker->file_len - offset, got = 0;
    size_t len = chance(walker, 2) ? 0 : 1 + chance(walker, MIB), wanted = len ? len : rest;
    size_t bytes = wanted < rest ? wanted : rest;
    for (int index = 0; index < MAPPINGS; index++) {
        struct mapping *other = &walker->mappings[index];
        if (other->at && offset < other->offset + other->bytes && other->offset < offset + bytes)
            return;
    }
    int writable = chance(walker, 3) > 0;
    unsigned char *at = tera_map_file(walker->name, offset, len, writable ? TERA_RDWR : TERA_RDONLY, &got);
    CHECK(at && got == wanted);
    *mapping = (struct mapping){at, calloc(wanted, 1), offset, wanted, bytes, writable};
    memcpy(mapping->model, walker->file + offset, bytes);
}

static void sync_or_unmap(struct walker *walker, struct mapping *mapping)
{
    if (mapping->writable)
        memcpy(walker->file + mapping->offset, mapping->model, mapping->bytes);
    if (chance(walker, 3) == 0) {
        CHECK(tera_unmap(mapping->at) == 0);
        free(mapping->model);
        memset(mapping, 0, sizeof *mapping);
    } else {
        CHECK(tera_sync(mapping->at) == 0);
    }
    check_file(walker);
}

static void advise(struct walker *walker, const struct mapping *mapping)
{
    const struct allocation *allocation = &walker->allocations[chance(walker, ALLOCATIONS)];
    unsigned char *at = mapping->at ? mapping->at : allocation->at;
    size_t len = mapping->at ? mapping->len : allocation->len, from, count;
    if (!at || !len)
        return;
    part(walker, len, &from, &count);
    CHECK(tera_advise(at + from, chance(walker, 2) ? count : len - from, 1 + (int)chance(walker, 4)) == 0);
    FAILS(tera_advise(at + from, (size_t)1 << (42 + chance(walker, 21)), TERA_DONE_WITH) == -1, EINVAL);
    FAILS(tera_advise(at, len, 5) == -1, EINVAL);
}

/* What cannot be changes nothing. */
static void mistakes(struct walker *walker, const struct mapping *mapping)
{
    const struct allocation *allocation = &walker->allocations[chance(walker, ALLOCATIONS)];
    size_t pages = (walker->file_len + PAGE - 1) / PAGE * PAGE;
    if (allocation->at && allocation->len > 1) {
        size_t inside = 1 + chance(walker, allocation->len - 1);
        FAILS(tera_free(allocation->at + inside) == -1, EINVAL);
        FAILS(tera_realloc(allocation->at + inside, 9) == NULL, EINVAL);
        FAILS(tera_realloc(allocation->at, (size_t)1 << (45 + chance(walker, 19))) == NULL, ENOMEM);
        FAILS(tera_realloc(allocation->at, SIZE_MAX - chance(walker, 9000)) == NULL, ENOMEM);
        FAILS(tera_unmap(allocation->at) == -1, EINVAL);
    }
    if (mapping->at) {
        FAILS(tera_free(mapping->at) == -1, EINVAL);
        FAILS(tera_realloc(mapping->at, 9) == NULL, EINVAL);
        FAILS(tera_sync(mapping->at + 1 + chance(walker, mapping->len)) == -1, EINVAL);
    }
    FAILS(tera_map_file(walker->name, 1 + chance(walker, PAGE - 1), 0, TERA_RDWR, NULL) == NULL, EINVAL);
    FAILS(tera_map_file(walker->name, pages, chance(walker, 2) * PAGE, TERA_RDWR, NULL) == NULL, EINVAL);
    FAILS(tera_map_file(walker->name, 0, SIZE_MAX - chance(walker, 9000), TERA_RDONLY, NULL) == NULL, ENOMEM);
}

static void step(struct walker *walker);

static void forks(struct walker *walker)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        walker->is_child = 1;
        walker->state ^= 0x5555;
        check_all(walker);
        for (int count = 0; count < 60; count++)
            step(walker);
        check_all(walker);
        _exit(0);
    }
    /* The file is the child's to read meanwhile; the other threads go on with theirs. */
    for (int count = 0; count < 10; count++)
        allocate(walker);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void step(struct walker *walker)
{
    struct mapping *mapping = &walker->mappings[chance(walker, MAPPINGS)];
    uint64_t what = chance(walker, 16);
    size_t from, count;
    if (what < 5) {
        allocate(walker);
    } else if (what < 6) {
        advise(walker, mapping);
    } else if (what < 7 && chance(walker, 4) == 0) {
        mistakes(walker, mapping);
    } else if (what < 8 && !walker->is_child && chance(walker, 20) == 0) {
        forks(walker);
    } else if (!mapping->at) {
        if (!walker->is_child)
            map(walker, mapping);
    } else if (what < 10 && !walker->is_child) {
        sync_or_unmap(walker, mapping);
    } else {
        part(walker, mapping->len, &from, &count);
        if (what < 13)
            fill(walker, mapping->at + from, mapping->model + from, count);
        else
            CHECK(memcmp(mapping->at + from, mapping->model + from, count) == 0);
    }
}

/* A file of any length, with holes. */
static void make_file(struct walker *walker)
{
    walker->fd = open(directory, O_TMPFILE | O_RDWR, 0600);
    CHECK(walker->fd >= 0);
    sprintf(walker->name, "/proc/self/fd/%d", walker->fd);
    walker->direct = open(walker->name, O_RDONLY | O_DIRECT);
    walker->file = calloc(FILE_MAX, 1);
    walker->file_len = 1 + chance(walker, chance(walker, 4) ? FILE_MAX : 20000);
    CHECK(ftruncate(walker->fd, (off_t)walker->file_len) == 0);
    unsigned char *bytes = malloc(MIB);
    for (size_t at = 0, len; at < walker->file_len; at += len) {
        len = 1 + chance(walker, 300000);
        if (len > walker->file_len - at)
            len = walker->file_len - at;
        if (chance(walker, 3) == 0)
            continue;
        fill(walker, bytes, walker->file + at, len);
        CHECK(pwrite(walker->fd, bytes, len, (off_t)at) == (ssize_t)len);
    }
    free(bytes);
}

static void *walk(void *argument)
{
    struct walker *walker = argument;
    make_file(walker);
    for (size_t count = 0; count < steps; count++)
        step(walker);
    check_all(walker);
    for (int index = 0; index < MAPPINGS; index++)
        while (walker->mappings[index].at)
            sync_or_unmap(walker, &walker->mappings[index]);
    for (int index = 0; index < ALLOCATIONS; index++) {
        CHECK(tera_free(walker->allocations[index].at) == 0);
        forget(&walker->allocations[index]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct walker walkers[THREADS];
    CHECK(argc > 2);
    directory = argv[1];
    steps = strtoull(argv[2], NULL, 10);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)getpid();
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    if (tera_init(NULL) != 0) {
        CHECK(errno == EPERM || errno == ENOSYS);
        fprintf(stderr, "SKIPPED: %s\n", tera_error());
        return 0;
    }
    pthread_t threads[THREADS];
    for (size_t thread = 0; thread < THREADS; thread++) {
        walkers[thread].state = seed * THREADS + thread;
        CHECK(pthread_create(&threads[thread], NULL, walk, &walkers[thread]) == 0);
    }
    for (size_t thread = 0; thread < THREADS; thread++)
        pthread_join(threads[thread], NULL);
    struct tera_stats stats;
    CHECK(tera_stats(&stats) == 0 && stats.resident_peak_bytes <= stats.budget_bytes);
    return 0;
}

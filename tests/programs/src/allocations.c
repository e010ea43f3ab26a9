/* The malloc family: what each call promises, and threads that free each other's blocks. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "page.h"

#define THREADS 8
#define BOX 64

static size_t bytes;

static int aligned(const void *at, size_t to) { return (uintptr_t)at % to == 0; }

static void zeros(void) {
    for (int round = 0; round < 3; round++) {
        char *large = calloc(bytes / 16, 16);
        CHECK(large != NULL && not_zero(large, bytes / 16 * 16) == 0);
        fill(large, bytes / 16 * 16, round);
        free(large);
        char *small[1000];
        for (int i = 0; i < 1000; i++) {
            small[i] = calloc(1 + i, 8);
            CHECK(small[i] != NULL && not_zero(small[i], 8 * (1 + i)) == 0);
            memset(small[i], 0xff, 8 * (1 + i));
        }
        for (int i = 0; i < 1000; i++)
            free(small[i]);
    }
    errno = 0;
    volatile size_t huge = SIZE_MAX / 2;
    CHECK(calloc(huge, 4) == NULL && errno == ENOMEM);
    /* Beside addresses that were used once. */
    char *once = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(once != MAP_FAILED && munmap(once, 1 << 20) == 0);
    for (int shift = 12; shift < 63; shift++) {
        huge = SIZE_MAX - ((size_t)1 << shift);
        errno = 0;
        CHECK(malloc(huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(huge, 1) == NULL && errno == ENOMEM);
        void *none;
        CHECK(posix_memalign(&none, 64, huge) == ENOMEM && posix_memalign(&none, 1 << 20, huge) == ENOMEM);
        CHECK(aligned_alloc(64, huge) == NULL && realloc(NULL, huge) == NULL);
    }
    puts("calloc: ok");
}

static void sizes_change(void) {
    char *at = NULL;
    size_t now = 0;
    for (size_t next = 24; next <= bytes; next = next * 7 / 4 / 8 * 8) {
        at = realloc(at, next);
        CHECK(at != NULL && aligned(at, 16));
        CHECK(differing(at, now, 20) == 0);
        fill(at, next, 20);
        now = next;
    }
    while (now > 64) {
        now = now / 3 / 8 * 8;
        at = realloc(at, now);
        CHECK(at != NULL && differing(at, now, 20) == 0);
    }
    volatile size_t huge = SIZE_MAX / 2;
    errno = 0;
    CHECK(realloc(at, huge) == NULL && errno == ENOMEM);
    CHECK(differing(at, now, 20) == 0);
    errno = 0;
    CHECK(reallocarray(at, huge, 4) == NULL && errno == ENOMEM);
    at = reallocarray(at, 100, 80);
    CHECK(at != NULL && differing(at, now, 20) == 0);
    free(at);
    /* So much that rounding it up goes past the end of all addresses. */
    at = malloc(bytes / 16);
    fill(at, bytes / 16, 21);
    for (size_t less = 0; less < 10000; less += 1000) {
        volatile size_t all = SIZE_MAX - less;
        errno = 0;
        CHECK(realloc(at, all) == NULL && errno == ENOMEM);
    }
    CHECK(differing(at, bytes / 16, 21) == 0);
    free(at);
    puts("realloc: ok");
}

static void alignments(void) {
    volatile size_t none = 0;
    for (size_t to = sizeof(void *); to <= (size_t)4 << 20; to *= 2) {
        void *at = NULL;
        CHECK(posix_memalign(&at, to, 1000) == 0 && aligned(at, to));
        CHECK(malloc_usable_size(at) >= 1000);
        memset(at, 1, malloc_usable_size(at));
        at = realloc(at, 5000);
        CHECK(at != NULL && ((char *)at)[999] == 1);
        free(at);
        at = aligned_alloc(to, 4 * to);
        CHECK(at != NULL && aligned(at, to));
        memset(at, 2, 4 * to);
        free(at);
        CHECK(posix_memalign(&at, to, none) == 0 && aligned(at, to));
        memset(at, 3, malloc_usable_size(at));
        at = realloc(at, 50);
        CHECK(at != NULL);
        free(at);
        at = aligned_alloc(to, none);
        CHECK(at != NULL && aligned(at, to));
        free(at);
        at = memalign(to, 333);
        CHECK(at != NULL && aligned(at, to));
        free(at);
    }
    void *at = valloc(100);
    CHECK(at != NULL && aligned(at, PAGE));
    free(at);
    at = pvalloc(100);
    CHECK(at != NULL && aligned(at, PAGE) && malloc_usable_size(at) >= PAGE);
    free(at);
    void *untouched = &at;
    volatile size_t odd = 3;
    at = untouched;
    CHECK(posix_memalign(&at, odd, 8) == EINVAL && at == untouched);
    CHECK(posix_memalign(&at, 2, 8) == EINVAL && at == untouched);
    CHECK(posix_memalign(&at, 64, SIZE_MAX / 2) == ENOMEM && at == untouched);
    puts("alignments: ok");
}

static void edges(void) {
    volatile size_t none = 0, huge = SIZE_MAX / 2;
    void *empty = malloc(none), *other = malloc(none);
    CHECK(empty != NULL && other != NULL && empty != other);
    free(empty);
    free(other);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    errno = 0;
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    errno = 4711;
    free(malloc(100));
    free(malloc(bytes / 2));
    CHECK(errno == 4711);
    for (size_t size = 1; size < (size_t)3 << 20; size += size / 3 + 1) {
        char *at = malloc(size);
        CHECK(at != NULL && aligned(at, 16));
        size_t usable = malloc_usable_size(at);
        CHECK(usable >= size);
        memset(at, 0x5a, usable);
        free(at);
    }
    char *text = strdup("text"), *made = NULL;
    CHECK(text != NULL && asprintf(&made, "%s %d", text, 42) == 7 && strcmp(made, "text 42") == 0);
    free(text);
    free(made);
    puts("edges: ok");
}

/* Objects over which the program maps something stay one object. */
static void mapped_over(void) {
    size_t whole = bytes / 16, part = whole / 4;
    int flags;
    for (int shared = 0; shared < 2; shared++) {
        void *at;
        CHECK(posix_memalign(&at, PAGE, whole) == 0);
        flags = MAP_ANONYMOUS | MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE);
        CHECK(mmap(at, whole, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
        CHECK(not_zero(at, whole) == 0);
        CHECK(malloc_usable_size(at) >= whole);
        free(at);
    }
    for (int shared = 0; shared < 2; shared++) {
        char *at = malloc(whole), *kept = malloc(whole);
        CHECK(at != NULL && kept != NULL);
        fill(at, whole, 30);
        char *middle = (char *)(((uintptr_t)at + part + PAGE - 1) / PAGE * PAGE);
        flags = MAP_ANONYMOUS | MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE);
        CHECK(mmap(middle, part, PROT_READ | PROT_WRITE, flags, -1, 0) == middle);
        memcpy(kept, at, whole);
        CHECK(not_zero(kept + (middle - at), part) == 0);
        CHECK(malloc_usable_size(at) >= whole);
        at = realloc(at, 2 * whole);
        CHECK(at != NULL && memcmp(at, kept, whole) == 0);
        fill(at, 2 * whole, 31);
        CHECK(differing(at, 2 * whole, 31) == 0);
        free(at);
        free(kept);
    }
    puts("mapped over: ok");
}

/* A box holds blocks that any thread may take, check and free. */
static struct {
    pthread_mutex_t lock;
    uint64_t *blocks[BOX];
} boxes[THREADS];

static void *worker(void *argument) {
    uint64_t self = (uintptr_t)argument, rounds = bytes / 4096;
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t draw = word(100 + self, i), box = draw % THREADS, slot = draw / THREADS % BOX;
        size_t size = 16 + (draw >> 32) % (i % 64 ? 2000 : 200000);
        uint64_t *mine = i % 3 ? malloc(size) : calloc(1, size);
        CHECK(mine != NULL);
        mine[0] = size;
        mine[1] = draw;
        memset(mine + 2, (int)draw, size - 16);
        pthread_mutex_lock(&boxes[box].lock);
        uint64_t *old = boxes[box].blocks[slot];
        boxes[box].blocks[slot] = mine;
        pthread_mutex_unlock(&boxes[box].lock);
        if (old == NULL)
            continue;
        const unsigned char *rest = (const unsigned char *)(old + 2);
        for (size_t at = 0; at < old[0] - 16; at += 61)
            CHECK(rest[at] == (unsigned char)old[1]);
        if (i % 5 == 0) {
            uint64_t before = old[1];
            old = realloc(old, old[0] + 500);
            CHECK(old != NULL && old[1] == before);
        }
        free(old);
    }
    return NULL;
}

static void threads(void) {
    pthread_t ids[THREADS];
    for (int generation = 0; generation < 2; generation++) {
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&ids[i], NULL, worker, (void *)i) == 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(ids[i], NULL) == 0);
    }
    for (int box = 0; box < THREADS; box++)
        for (int slot = 0; slot < BOX; slot++)
            free(boxes[box].blocks[slot]);
    puts("threads: ok");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) << 20;
    for (int i = 0; i < THREADS; i++)
        pthread_mutex_init(&boxes[i].lock, NULL);
    zeros();
    sizes_change();
    alignments();
    edges();
    mapped_over();
    threads();
    return 0;
}

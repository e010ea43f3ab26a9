/* Random calls of the malloc family by several threads, against a model: where each object lies,
 * and what it holds.
 *
 * Objects go from thread to thread, threads end and others go on with what they had, and children
 * are forked at any moment, which go on by themselves.
 *
 * usage: heap_walk CALLS [SEED]     the seed is printed
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"
#include "page.h"

#define THREADS 3
#define GENERATIONS 2
#define OBJECTS 80

struct object {
    char *at;
    size_t size;
    /* Of its words; its last bytes are the series' own. */
    uint64_t series;
};

struct walker {
    uint64_t state;
    struct object objects[OBJECTS];
};

static struct walker walkers[THREADS];
/* Nobody's: who holds the lock may take and give. */
static struct object shared[OBJECTS];
/* Guards the places of all objects: where they lie, not what they hold. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t calls;
static int is_child;

static uint64_t chance(struct walker *walker, uint64_t of) {
    walker->state = walker->state * 6364136223846793005u + 1442695040888963407u;
    return (walker->state >> 33) % of;
}

static void check_object(struct object object) {
    CHECK(differing(object.at, object.size, object.series) == 0);
    for (size_t at = object.size / 8 * 8; at < object.size; at++)
        CHECK(object.at[at] == (char)object.series);
}

static void fill_object(struct object object) {
    fill(object.at, object.size, object.series);
    memset(object.at + object.size / 8 * 8, (int)object.series, object.size % 8);
}

static int meet(struct object one, struct object other) {
    /* One without a byte has an address of its own all the same. */
    size_t size = one.size ? one.size : 1, other_size = other.size ? other.size : 1;
    return one.at < other.at + other_size && other.at < one.at + size;
}

static void check_apart(struct object object) {
    for (size_t index = 0; index < OBJECTS; index++) {
        CHECK(!shared[index].at || !meet(object, shared[index]));
        for (size_t thread = 0; thread < THREADS; thread++) {
            struct object other = walkers[thread].objects[index];
            CHECK(!other.at || !meet(object, other));
        }
    }
}

/* An object is in the model from now on. */
static void note(struct object *place, struct object object) {
    pthread_mutex_lock(&lock);
    check_apart(object);
    *place = object;
    pthread_mutex_unlock(&lock);
}

/* The model's object, which is about to go. */
static struct object take(struct object *place) {
    pthread_mutex_lock(&lock);
    struct object object = *place;
    place->at = NULL;
    pthread_mutex_unlock(&lock);
    return object;
}

static size_t some_size(struct walker *walker) {
    switch (chance(walker, 12)) {
    case 0:
        return chance(walker, 3);
    case 1:
        return chance(walker, (size_t)3 << 19);
    case 2:
        return PAGE * chance(walker, 60);
    case 3:
        return ((size_t)1 << chance(walker, 21)) - 1 + chance(walker, 3);
    case 4:
    case 5:
        return chance(walker, 150000);
    default:
        return chance(walker, 1500);
    }
}

static char *allocate(struct walker *walker, size_t size) {
    size_t align = 16;
    void *at = NULL;
    switch (chance(walker, 9)) {
    case 0:
        at = calloc(1, size);
        for (size_t byte = 0; byte < size; byte++)
            CHECK(((char *)at)[byte] == 0);
        break;
    case 1:
        align = (size_t)8 << chance(walker, 14);
        CHECK(posix_memalign(&at, align, size) == 0);
        break;
    case 2:
        align = (size_t)1 << chance(walker, 22);
        at = aligned_alloc(align, size);
        break;
    case 3:
        align = (size_t)1 << chance(walker, 16);
        at = memalign(align, size);
        break;
    case 4:
        align = PAGE;
        at = chance(walker, 2) ? valloc(size) : pvalloc(size);
        break;
    case 5:
        at = reallocarray(NULL, size, 1);
        break;
    default:
        at = malloc(size);
    }
    CHECK(at != NULL && (uintptr_t)at % align == 0);
    return at;
}

static void make(struct walker *walker, struct object *place) {
    struct object object = {.size = some_size(walker), .series = 1 + chance(walker, 1 << 30)};
    object.at = allocate(walker, object.size);
    size_t usable = malloc_usable_size(object.at);
    CHECK(usable >= object.size);
    if (chance(walker, 3) == 0 && usable < (size_t)4 << 20)
        object.size = usable;
    note(place, object);
    fill_object(object);
}

static void drop(struct object *place) {
    struct object object = take(place);
    check_object(object);
    free(object.at);
}

static void resize(struct walker *walker, struct object *place) {
    struct object object = take(place);
    check_object(object);
    size_t size = 1 + (chance(walker, 3) ? object.size + chance(walker, 5000) : some_size(walker));
    char *at = chance(walker, 2) ? realloc(object.at, size) : reallocarray(object.at, size, 1);
    CHECK(at != NULL);
    CHECK(differing(at, object.size < size ? object.size : size, object.series) == 0);
    object.at = at;
    object.size = size;
    note(place, object);
    fill_object(object);
}

/* What cannot be changes nothing. */
static void ask_too_much(struct walker *walker, struct object object) {
    volatile size_t sizes[] = {SIZE_MAX - chance(walker, 3 * PAGE), (size_t)1 << (48 + chance(walker, 16)),
                               SIZE_MAX - ((size_t)1 << (16 + chance(walker, 46)))};
    for (size_t index = 0; index < 3; index++) {
        errno = 0;
        CHECK(realloc(object.at, sizes[index]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(malloc(sizes[index]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(sizes[index], 1 + chance(walker, 100)) == NULL && errno == ENOMEM);
    }
    check_object(object);
}

static void walk(struct walker *walker, size_t count);

static void forks(struct walker *walker) {
    pthread_mutex_lock(&lock);
    pid_t child = fork();
    pthread_mutex_unlock(&lock);
    CHECK(child >= 0);
    if (child == 0) {
        is_child = 1;
        walker->state ^= 0x5555;
        for (size_t index = 0; index < OBJECTS; index++) {
            if (walker->objects[index].at)
                check_object(walker->objects[index]);
            if (shared[index].at)
                check_object(shared[index]);
        }
        walk(walker, 100);
        _exit(0);
    }
    /* Both go on. */
    walk(walker, 20);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void step(struct walker *walker) {
    struct object *place = &walker->objects[chance(walker, OBJECTS)];
    switch (chance(walker, 12)) {
    case 0:
    case 1:
        if (place->at)
            resize(walker, place);
        break;
    case 2:
        if (place->at)
            drop(place);
        break;
    case 3:
    case 4: {
        pthread_mutex_lock(&lock);
        struct object *other = &shared[chance(walker, OBJECTS)], before = *place;
        *place = *other;
        *other = before;
        pthread_mutex_unlock(&lock);
        if (place->at)
            check_object(*place);
        break;
    }
    case 5:
        if (place->at && chance(walker, 10) == 0)
            ask_too_much(walker, *place);
        break;
    case 6:
        if (!is_child && chance(walker, 60) == 0)
            forks(walker);
        break;
    case 7:
    case 8:
        if (place->at) {
            check_object(*place);
            place->series++;
            fill_object(*place);
        }
        break;
    default:
        if (place->at)
            drop(place);
        make(walker, place);
    }
}

static void walk(struct walker *walker, size_t count) {
    for (size_t call = 0; call < count; call++)
        step(walker);
}

static void *work(void *walker) {
    walk(walker, calls);
    return NULL;
}

int main(int argc, char **argv) {
    calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)getpid();
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    for (size_t thread = 0; thread < THREADS; thread++)
        walkers[thread].state = word(seed, thread);
    for (int generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[THREADS];
        for (size_t thread = 0; thread < THREADS; thread++)
            CHECK(pthread_create(&threads[thread], NULL, work, &walkers[thread]) == 0);
        for (size_t thread = 0; thread < THREADS; thread++)
            CHECK(pthread_join(threads[thread], NULL) == 0);
    }
    for (size_t index = 0; index < OBJECTS; index++) {
        for (size_t thread = 0; thread < THREADS; thread++)
            if (walkers[thread].objects[index].at)
                drop(&walkers[thread].objects[index]);
        if (shared[index].at)
            drop(&shared[index]);
    }
    printf("%zu calls\n", calls);
    return 0;
}

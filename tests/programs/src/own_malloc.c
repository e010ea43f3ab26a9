/* A program with a malloc of its own, which maps memory while it holds its lock, as jemalloc and
 * others do: then whoever serves that map must not need memory from it. Like tcmalloc it has the C
 * library's inner names, too. Like jemalloc, it registers for forks when it is first called.
 *
 * usage: own_malloc MIB. With -DLIBRARY only the malloc, to be linked to a program (-DPROGRAM) that
 * has none. With -DRESERVES=RIGHTS the malloc maps all its addresses at its first call, with these
 * rights.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

/* What the program does once the malloc has taken its lock for a fork, and in the child before the
 * lock is free again. */
struct on_fork {
    void (*locked)(void);
    void (*in_child)(void);
};
extern struct on_fork on_fork;

#ifndef PROGRAM

#include <dlfcn.h>

#define CHUNK ((size_t)1 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *at, *end;

struct on_fork on_fork;

static void take(void)
{
    pthread_mutex_lock(&lock);
    if (on_fork.locked != NULL)
        on_fork.locked();
}

static void give(void) { pthread_mutex_unlock(&lock); }

static void give_in_child(void)
{
    if (on_fork.in_child != NULL)
        on_fork.in_child();
    pthread_mutex_unlock(&lock);
}

/* As such a malloc has to: a child must not find the lock taken. */
static void forkable(void)
{
    static int is_registered;
    if (!__atomic_exchange_n(&is_registered, 1, __ATOMIC_RELAXED))
        pthread_atfork(take, give, give_in_child);
}

#ifdef RESERVES

/* As mimalloc does: all addresses are mapped at the first call, at a place that is named. If they
 * are only reserved, small parts are opened when they are needed. */
static int more(size_t whole)
{
    size_t all = (size_t)2 << 30, part = (size_t)1 << 16, bytes = (whole + part - 1) / part * part;
    if (at == NULL) {
        char *place = (char *)((uintptr_t)6 << 40);
        char *map = mmap(place, all, RESERVES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED)
            return 0;
        at = end = map;
    }
    if ((RESERVES) == PROT_NONE && mprotect(end, bytes, PROT_READ | PROT_WRITE) != 0)
        return 0;
    end += bytes;
    return 1;
}

#else

static int more(size_t whole)
{
    size_t bytes = (whole + CHUNK - 1) / CHUNK * CHUNK;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return 0;
    at = map;
    end = map + bytes;
    return 1;
}

#endif

/* Each piece has its size before it; none is given out again. */
void *malloc(size_t size)
{
    size_t whole = (size + 16 + 15) / 16 * 16;
    forkable();
    pthread_mutex_lock(&lock);
    if ((size_t)(end - at) < whole && !more(whole)) {
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    char *piece = at;
    at += whole;
    pthread_mutex_unlock(&lock);
    *(size_t *)piece = size;
    return piece + 16;
}

void free(void *piece)
{
    (void)piece;
}

void *calloc(size_t count, size_t size)
{
    return malloc(count * size);
}

void *realloc(void *old, size_t size)
{
    char *piece = malloc(size);
    if (old != NULL && piece != NULL) {
        size_t before = *(size_t *)((char *)old - 16);
        memcpy(piece, old, before < size ? before : size);
    }
    return piece;
}

size_t malloc_usable_size(void *piece)
{
    return piece == NULL ? 0 : *(size_t *)((char *)piece - 16);
}

void *memalign(size_t align, size_t size)
{
    char *piece = malloc(size + align);
    if (piece == NULL)
        return NULL;
    char *aligned = piece + (align - (uintptr_t)piece % align) % align;
    *(size_t *)(aligned - 16) = size;
    return aligned;
}

struct begun {
    void *(*work)(void *);
    void *argument;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done;
};

static void *begin(void *argument)
{
    struct begun *begun = argument, *mine = malloc(sizeof *mine);
    *mine = *begun;
    pthread_mutex_lock(&begun->lock);
    begun->done = 1;
    pthread_cond_signal(&begun->changed);
    pthread_mutex_unlock(&begun->lock);
    return mine->work(mine->argument);
}

/* As Firefox and sanitizers have one: it waits until the thread has taken memory and begun. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    struct begun begun = {work, argument, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    int error = real(thread, attributes, begin, &begun);
    if (error)
        return error;
    pthread_mutex_lock(&begun.lock);
    while (!begun.done)
        pthread_cond_wait(&begun.changed, &begun.lock);
    pthread_mutex_unlock(&begun.lock);
    return 0;
}

void *__libc_malloc(size_t size) { return malloc(size); }
void *__libc_calloc(size_t count, size_t size) { return calloc(count, size); }
void *__libc_realloc(void *old, size_t size) { return realloc(old, size); }
void *__libc_memalign(size_t align, size_t size) { return memalign(align, size); }
void __libc_free(void *piece) { free(piece); }

#endif
#ifndef LIBRARY

static void check_all(uint64_t **pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(differing(pieces[i], 4000, i) == 0);
}

/* Another thread that, as one of jemalloc's may, calls while the malloc's lock is taken. */
static struct {
    sem_t asks, answers;
    uint64_t **pieces;
    size_t count;
} other;

static void *calls(void *argument)
{
    int zeros = open("/dev/zero", O_RDONLY);
    CHECK(zeros >= 0);
    for (;;) {
        while (sem_wait(&other.asks) != 0)
            CHECK(errno == EINTR);
        char *map = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED && read(zeros, map, 1 << 16) == 1 << 16 && munmap(map, 1 << 16) == 0);
        CHECK(differing(other.pieces[1], 4000, 1) == 0);
        sem_post(&other.answers);
    }
    return argument;
}

/* A thread that already holds the malloc's lock must come to its end before the fork. */
static void locked(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    sem_post(&other.asks);
    while (sem_timedwait(&other.answers, &until) != 0)
        CHECK(errno == EINTR);
}

/* The malloc's own data are paged, too. */
static void in_child(void)
{
    for (size_t i = 0; i < other.count; i += 16)
        CHECK(differing(other.pieces[i], 4000, i) == 0);
}

static void *second(void *argument)
{
    uint64_t *piece = malloc(4000);
    fill(piece, 4000, 7);
    return differing(piece, 4000, 7) == 0 ? argument : NULL;
}

int main(int argc, char **argv)
{
    /* Before there is anything to page, too. */
    pid_t first = fork();
    CHECK(first >= 0);
    if (first == 0)
        _exit(malloc(100) == NULL);
    int ended;
    CHECK(waitpid(first, &ended, 0) == first && ended == 0);
    size_t count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) * 256;
    uint64_t **pieces = malloc(count * sizeof *pieces);
    CHECK(pieces != NULL);
    for (size_t i = 0; i < count; i++) {
        pieces[i] = malloc(4000);
        CHECK(pieces[i] != NULL);
        fill(pieces[i], 4000, i);
    }
    check_all(pieces, count);
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, second, &count) == 0 && pthread_join(thread, &result) == 0 && result == &count);
    other.pieces = pieces;
    other.count = count;
    CHECK(sem_init(&other.asks, 0, 0) == 0 && sem_init(&other.answers, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
    on_fork = (struct on_fork){locked, in_child};
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            check_all(pieces, count);
            for (size_t i = 0; i < count; i += 3)
                fill(pieces[i], 4000, i + 1);
            for (size_t i = 0; i < count; i += 3)
                CHECK(differing(pieces[i], 4000, i + 1) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        check_all(pieces, count);
    }
    for (size_t i = 0; i < count; i += 7) {
        size_t longer = i % 98 ? 5000 : 1 << 18;
        pieces[i] = realloc(pieces[i], longer);
        CHECK(pieces[i] != NULL && differing(pieces[i], 4000, i) == 0);
        memset((char *)pieces[i] + 4000, 1, longer - 4000);
    }
    printf("%zu pieces\n", count);
    return 0;
}

#endif

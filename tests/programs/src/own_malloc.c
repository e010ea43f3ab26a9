/* A program with a malloc of its own, which maps memory while it holds its lock, as jemalloc and
 * others do: then whoever serves that map must not need memory from it. Like tcmalloc it has the C
 * library's inner names, too.
 *
 * usage: own_malloc MIB. With -DLIBRARY only the malloc, to be linked to a program (-DPROGRAM) that
 * has none.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#ifndef PROGRAM

#include <dlfcn.h>

#define CHUNK ((size_t)1 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *at, *end;

static void take(void) { pthread_mutex_lock(&lock); }
static void give(void) { pthread_mutex_unlock(&lock); }

/* As such a malloc has to: a child must not find the lock taken. */
__attribute__((constructor)) static void forkable(void)
{
    pthread_atfork(take, give, give);
}

/* Each piece has its size before it; none is given out again. */
void *malloc(size_t size)
{
    size_t whole = (size + 16 + 15) / 16 * 16;
    pthread_mutex_lock(&lock);
    if ((size_t)(end - at) < whole) {
        size_t bytes = (whole + CHUNK - 1) / CHUNK * CHUNK;
        char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        at = map;
        end = map + bytes;
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

/* A library that stands before malloc and counts its objects, as profilers do: each has a header,
 * and comes from the function behind (RTLD_NEXT). The program (-DPROGRAM) sees that all of its
 * objects were counted. With -DBOTH the program itself is the wrapper.
 *
 * usage: wrapper MIB
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

size_t wrapper_made(void);
size_t wrapper_ended(void);

#ifndef PROGRAM

static size_t made, ended;

size_t wrapper_made(void) { return made; }
size_t wrapper_ended(void) { return ended; }

/* The first call may come before any constructor. */
#define BEHIND(type, name)                                                                                   \
    static __typeof__(type) behind;                                                                                    \
    if (behind == NULL)                                                                                      \
        *(void **)&behind = dlsym(RTLD_NEXT, name)

#define HEADER 16
#define MARK 0x77726170u

static void *with_header(char *at, size_t size)
{
    if (at == NULL)
        return NULL;
    ((size_t *)at)[0] = size;
    ((size_t *)at)[1] = MARK;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return at + HEADER;
}

static size_t *header_of(void *at)
{
    size_t *header = (size_t *)((char *)at - HEADER);
    CHECK(header[1] == MARK);
    return header;
}

void *malloc(size_t size)
{
    BEHIND(void *(*)(size_t), "malloc");
    return with_header(behind(size + HEADER), size);
}

void free(void *at)
{
    BEHIND(void (*)(void *), "free");
    if (at == NULL)
        return;
    size_t *header = header_of(at);
    header[1] = 0;
    __atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
    behind(header);
}

void *calloc(size_t count, size_t size)
{
    BEHIND(void *(*)(size_t, size_t), "calloc");
    return with_header(behind(1, count * size + HEADER), count * size);
}

void *realloc(void *old, size_t size)
{
    if (old == NULL)
        return malloc(size);
    BEHIND(void *(*)(void *, size_t), "realloc");
    char *at = behind(header_of(old), size + HEADER);
    if (at == NULL)
        return NULL;
    ((size_t *)at)[0] = size;
    return at + HEADER;
}

size_t malloc_usable_size(void *at)
{
    return at == NULL ? 0 : header_of(at)[0];
}

#endif
#if defined(PROGRAM) || defined(BOTH)

int main(int argc, char **argv)
{
    size_t many = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) << 20 >> 10;
    void **all = malloc(many * sizeof *all);
    size_t before = wrapper_made(), before_ended = wrapper_ended();
    for (size_t i = 0; i < many; i++) {
        size_t size = 400 + word(4, i) % 1200 / 8 * 8;
        all[i] = i % 2 ? malloc(size) : calloc(1, size);
        CHECK(all[i] != NULL);
        fill(all[i], size, i);
    }
    size_t texts = 0;
    for (size_t i = 0; i < many; i++) {
        size_t size = 400 + word(4, i) % 1200 / 8 * 8;
        CHECK(differing(all[i], size, i) == 0);
        if (i % 4 == 0) {
            all[i] = realloc(all[i], size + 700);
            CHECK(differing(all[i], size, i) == 0);
        }
        if (i % 16 == 0) {
            char *text = strdup("a text of the C library");
            free(text);
            texts++;
        }
        free(all[i]);
    }
    CHECK(wrapper_made() - before == many + texts && wrapper_ended() - before_ended == many + texts);
    free(all);
    /* The C library's own functions are those behind. */
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    CHECK(libc != NULL);
    void *(*behind)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
    void (*end)(void *) = (void (*)(void *))dlsym(libc, "free");
    before = wrapper_made();
    void *last = behind(100);
    memset(last, 7, 100);
    CHECK(wrapper_made() == before);
    end(last);
    printf("%zu objects, all counted\n", many + texts);
    return 0;
}

#endif

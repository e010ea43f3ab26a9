/* malloc's family, looked up in all ways: objects of one way are freed by each other way.
 *
 * usage: looked_up MIB; in a library (-DPLUGIN), which is opened late, the lookups of RTLD_NEXT.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>

#include "check.h"

struct family {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t);
    void (*free)(void *);
    size_t (*usable)(void *);
    int (*posix)(void **, size_t, size_t);
    void *(*aligned)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    char *(*strdup)(const char *);
    struct mallinfo2 (*mallinfo2)(void);
};

#define FIND(name) *(void **)&family->name
#define NAMES                                                                                                \
    FIND(malloc) = FOUND("malloc"), FIND(calloc) = FOUND("calloc"), FIND(realloc) = FOUND("realloc"),        \
    FIND(reallocarray) = FOUND("reallocarray"), FIND(free) = FOUND("free"),                                  \
    FIND(usable) = FOUND("malloc_usable_size"), FIND(posix) = FOUND("posix_memalign"),                       \
    FIND(aligned) = FOUND("aligned_alloc"), FIND(memalign) = FOUND("memalign"),                              \
    FIND(valloc) = FOUND("valloc"), FIND(pvalloc) = FOUND("pvalloc"), FIND(strdup) = FOUND("strdup"),        \
    FIND(mallinfo2) = FOUND("mallinfo2")

#ifdef PLUGIN

void look_up_next(struct family *family);
void call(struct family *family);

void look_up_next(struct family *family)
{
#define FOUND(name) dlsym(RTLD_NEXT, name)
    NAMES;
#undef FOUND
}

/* As a library with RTLD_DEEPBIND sees them: by its own calls. */
void call(struct family *family)
{
    *family = (struct family){malloc, calloc, realloc, reallocarray, free, malloc_usable_size, posix_memalign,
                              aligned_alloc, memalign, valloc, pvalloc, strdup, mallinfo2};
}

#else

static void look_up(struct family *family, void *handle)
{
#define FOUND(name) dlsym(handle, name)
    NAMES;
#undef FOUND
}

static void look_up_inner(struct family *family, void *handle)
{
    look_up(family, handle);
    FIND(malloc) = dlsym(handle, "__libc_malloc");
    FIND(calloc) = dlsym(handle, "__libc_calloc");
    FIND(realloc) = dlsym(handle, "__libc_realloc");
    FIND(free) = dlsym(handle, "__libc_free");
    FIND(memalign) = dlsym(handle, "__libc_memalign");
    FIND(valloc) = dlsym(handle, "__libc_valloc");
    FIND(pvalloc) = dlsym(handle, "__libc_pvalloc");
}

static void look_up_version(struct family *family, void *handle)
{
    look_up(family, handle);
#ifdef __x86_64__
    FIND(malloc) = dlvsym(handle, "malloc", "GLIBC_2.2.5");
    FIND(free) = dlvsym(handle, "cfree", "GLIBC_2.2.5");
    FIND(aligned) = dlvsym(handle, "aligned_alloc", "GLIBC_2.16");
#endif
}

/* One object for each member that makes objects. */
static void *make(struct family *by, size_t which, size_t size)
{
    void *at = NULL;
    char text[64];
    switch (which % 10) {
    case 0: return by->malloc(size);
    case 1: return by->calloc(1, size);
    case 2: return by->realloc(by->malloc(8), size);
    case 3: return by->reallocarray(NULL, size, 1);
    case 4: return by->posix(&at, 64, size) ? NULL : at;
    case 5: return by->aligned(64, (size + 63) / 64 * 64);
    case 6: return by->memalign(4096, size);
    case 7: return by->valloc(size);
    case 8: return by->pvalloc(size);
    default: snprintf(text, sizeof text, "%060zu", size); return by->realloc(by->strdup(text), size);
    }
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) << 20;
    static struct family ways[9];
    size_t count = 0;
    ways[count++] = (struct family){malloc, calloc, realloc, reallocarray, free, malloc_usable_size, posix_memalign,
                                    aligned_alloc, memalign, valloc, pvalloc, strdup, mallinfo2};
    void *libc = dlopen("libc.so.6", RTLD_LAZY), *own = dlopen(NULL, RTLD_LAZY);
    CHECK(libc != NULL && own != NULL);
    look_up(&ways[count++], libc);
    look_up(&ways[count++], own);
    look_up(&ways[count++], RTLD_DEFAULT);
    look_up(&ways[count++], RTLD_NEXT);
    look_up_inner(&ways[count++], libc);
    look_up_version(&ways[count++], libc);
    /* Libraries that are opened late: RTLD_NEXT behind them, and calls with RTLD_DEEPBIND. */
    char path[4096];
    snprintf(path, sizeof path, "%.*s/liblookedup.so", (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
    void *late = dlopen(path, RTLD_NOW);
    CHECK(late != NULL);
    void (*next)(struct family *) = (void (*)(struct family *))dlsym(late, "look_up_next");
    next(&ways[count++]);
    dlclose(late);
    late = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(late != NULL);
    void (*call)(struct family *) = (void (*)(struct family *))dlsym(late, "call");
    call(&ways[count++]);

    size_t many = bytes / 2600, large = 0;
    struct {
        void *at;
        size_t size;
    } *all = calloc(many, sizeof *all);
    for (size_t i = 0; i < many; i++) {
        all[i].size = i % 400 == 399 ? 200000 : i % 1000 == 998 ? (size_t)2 << 20 : 64 + word(3, i) % 1500 / 8 * 8;
        large += all[i].size > 100000;
        all[i].at = make(&ways[i % count], i / count, all[i].size);
        CHECK(all[i].at != NULL);
        fill(all[i].at, all[i].size, i);
    }
    for (size_t i = 0; i < many; i++) {
        struct family *by = &ways[(i / 7 + i) % count];
        CHECK(by->usable(all[i].at) >= all[i].size);
        CHECK(differing(all[i].at, all[i].size, i) == 0);
        if (i % 3 == 0) {
            size_t longer = all[i].size + (i % 99 ? 300 : 300000);
            all[i].at = by->realloc(all[i].at, longer);
            CHECK(all[i].at != NULL && differing(all[i].at, all[i].size, i) == 0);
        }
        ways[i % 5].free(all[i].at);
    }
    free(all);
    /* The numbers are the same in all ways: nothing happens in between. */
    struct mallinfo2 first = ways[0].mallinfo2();
    for (size_t way = 1; way < count; way++) {
        struct mallinfo2 now = ways[way].mallinfo2();
        CHECK(memcmp(&first, &now, sizeof now) == 0);
    }
    /* Another namespace has a C library of its own, and a heap. */
    void *other = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (other != NULL) {
        struct family apart;
        look_up(&apart, other);
        for (size_t i = 0; i < 1000; i++) {
            char *text = apart.strdup("a text of another namespace");
            CHECK(strcmp(text, "a text of another namespace") == 0);
            text = apart.realloc(text, 100 + i);
            apart.free(text);
        }
    }
    printf("%zu objects, %zu large, %zu ways\n", many, large, count);
    return 0;
}

#endif

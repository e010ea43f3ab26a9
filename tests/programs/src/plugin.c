/* A library that the program loads with RTLD_DEEPBIND, so that it would see the C library's own
 * malloc and free and not those that stand in for them: as PHP and others load their extensions.
 * Both hand memory to one another.
 *
 * usage: plugin MIB. The library, built from the same source with -DPLUGIN, lies beside it and is
 * found by $ORIGIN.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

#ifdef PLUGIN

/* Frees what the program gave, and gives new memory that holds the same, longer. */
char *plugin_grow(char *text, size_t size)
{
    char *copy = strdup(text);
    free(text);
    char *grown = realloc(copy, 2 * size);
    if (grown == NULL)
        return NULL;
    memset(grown + strlen(grown) + 1, 'p', 2 * size - strlen(grown) - 1);
    return grown;
}

void plugin_drop(void *map, size_t size)
{
    munmap(map, size);
}

#else

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    void *library = dlopen("libplugin.so", RTLD_NOW | RTLD_DEEPBIND);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    char *(*grow)(char *, size_t) = (char *(*)(char *, size_t))dlsym(library, "plugin_grow");
    void (*drop)(void *, size_t) = (void (*)(void *, size_t))dlsym(library, "plugin_drop");
    CHECK(grow != NULL && drop != NULL);

    size_t count = mib * 1024, size = 512;
    char **texts = calloc(count, sizeof *texts);
    CHECK(texts != NULL);
    for (size_t i = 0; i < count; i++) {
        char *text = malloc(size);
        CHECK(text != NULL);
        snprintf(text, size, "text %zu of the plugin", i);
        texts[i] = grow(text, size);
        CHECK(texts[i] != NULL);
    }
    /* A map that the library unmaps is gone, and its addresses can be had again. */
    for (int round = 0; round < 8; round++) {
        size_t bytes = mib << 17;
        char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED);
        for (size_t i = 0; i < bytes; i += 4096) {
            CHECK(map[i] == 0);
            map[i] = (char)(i >> 12);
        }
        drop(map, bytes);
    }
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "text %zu of the plugin", i);
        CHECK(strcmp(texts[i], expected) == 0 && texts[i][2 * size - 1] == 'p');
        sum += strlen(texts[i]);
        free(texts[i]);
    }
    free(texts);
    printf("%zu texts, %zu bytes\n", count, sum);
    return 0;
}

#endif

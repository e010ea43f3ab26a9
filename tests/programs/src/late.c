/* An allocator that is opened late, beside the program's malloc: each frees its own objects.
 *
 * usage: late MIB LIBRARY
 */
#include <dlfcn.h>

#include "check.h"

int main(int argc, char **argv)
{
    CHECK(argc > 2);
    size_t many = strtoull(argv[1], NULL, 10) << 20 >> 10;
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("cannot be opened late\n");
        return 0;
    }
    void *(*its_malloc)(size_t) = (void *(*)(size_t))dlsym(library, "malloc");
    void *(*its_realloc)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "realloc");
    void (*its_free)(void *) = (void (*)(void *))dlsym(library, "free");
    CHECK(its_malloc != NULL && its_realloc != NULL && its_free != NULL && its_malloc != malloc);
    void **all = calloc(many, sizeof *all);
    for (size_t i = 0; i < many; i++) {
        size_t size = 300 + word(5, i) % 1400 / 8 * 8;
        all[i] = (i % 2 ? its_malloc : malloc)(size);
        CHECK(all[i] != NULL);
        fill(all[i], size, i);
    }
    for (size_t i = 0; i < many; i++) {
        size_t size = 300 + word(5, i) % 1400 / 8 * 8;
        CHECK(differing(all[i], size, i) == 0);
        if (i % 4 < 2)
            all[i] = (i % 2 ? its_realloc : realloc)(all[i], size + 500);
        CHECK(all[i] != NULL && differing(all[i], size, i) == 0);
        (i % 2 ? its_free : free)(all[i]);
    }
    free(all);
    printf("%zu objects\n", many);
    return 0;
}

/* C++ objects by each of the operators that an allocator may replace, containers, and objects that
 * one function makes and another one frees. The allocator is the C library's, or one that is linked
 * or preloaded.
 *
 * usage: operators MIB
 */
#include <map>
#include <new>
#include <string>
#include <vector>

#include "check.h"

#include <malloc.h>

/* The allocators' own calls: each is there only with its allocator. */
extern "C" {
__attribute__((weak)) void *mallocx(size_t size, int flags);
__attribute__((weak)) void sdallocx(void *at, size_t size, int flags);
__attribute__((weak)) void *mi_malloc(size_t size);
__attribute__((weak)) void mi_free(void *at);
__attribute__((weak)) void *tc_malloc(size_t size);
__attribute__((weak)) void tc_free(void *at);
}

static const std::align_val_t wide{64};

struct pair {
    void *(*make)(size_t size);
    void (*end)(void *at, size_t size);
};

static const pair pairs[] = {
    {[](size_t n) { return ::operator new(n); }, [](void *at, size_t) { ::operator delete(at); }},
    {[](size_t n) { return ::operator new(n); }, [](void *at, size_t n) { ::operator delete(at, n); }},
    {[](size_t n) { return ::operator new(n, std::nothrow); }, [](void *at, size_t) { ::operator delete(at, std::nothrow); }},
    {[](size_t n) { return ::operator new[](n); }, [](void *at, size_t) { ::operator delete[](at); }},
    {[](size_t n) { return ::operator new[](n); }, [](void *at, size_t n) { ::operator delete[](at, n); }},
    {[](size_t n) { return ::operator new[](n, std::nothrow); }, [](void *at, size_t) { ::operator delete[](at, std::nothrow); }},
    {[](size_t n) { return ::operator new(n, wide); }, [](void *at, size_t) { ::operator delete(at, wide); }},
    {[](size_t n) { return ::operator new(n, wide); }, [](void *at, size_t n) { ::operator delete(at, n, wide); }},
    {[](size_t n) { return ::operator new(n, wide, std::nothrow); }, [](void *at, size_t) { ::operator delete(at, wide, std::nothrow); }},
    {[](size_t n) { return ::operator new[](n, wide); }, [](void *at, size_t) { ::operator delete[](at, wide); }},
    {[](size_t n) { return ::operator new[](n, wide); }, [](void *at, size_t n) { ::operator delete[](at, n, wide); }},
    {[](size_t n) { return ::operator new[](n, wide, std::nothrow); }, [](void *at, size_t) { ::operator delete[](at, wide, std::nothrow); }},
    /* The C functions, mixed. */
    {[](size_t n) { return malloc(n); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return calloc(n, 1); }, [](void *at, size_t n) { free(realloc(at, n * 2)); }},
    {[](size_t n) { return reallocarray(malloc(8), n, 1); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return memalign(64, n); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return aligned_alloc(64, (n + 63) / 64 * 64); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return valloc(n); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { void *at; return posix_memalign(&at, 32, n) ? nullptr : at; }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return n % 5 ? malloc(n) : (void *)strndup("", 0); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return mallocx ? mallocx(n, 0) : malloc(n); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return malloc(n); }, [](void *at, size_t n) { sdallocx ? sdallocx(at, n, 0) : free(at); }},
    {[](size_t n) { return mi_malloc ? mi_malloc(n) : malloc(n); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return malloc(n); }, [](void *at, size_t) { mi_free ? mi_free(at) : free(at); }},
    {[](size_t n) { return tc_malloc ? tc_malloc(n) : malloc(n); }, [](void *at, size_t) { free(at); }},
    {[](size_t n) { return malloc(n); }, [](void *at, size_t) { tc_free ? tc_free(at) : free(at); }},
};
static const size_t kinds = sizeof pairs / sizeof *pairs;

/* Each kind has an empty text in a fifth of its sizes: those are not filled. */
static bool is_text(size_t kind, size_t size) { return kind == 19 && size % 5 == 0; }

static size_t size_of(size_t index) { return index % 199 == 198 ? 150000 : 8 + word(1, index) % 1200; }

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) << 20, many = bytes / 1350;
    std::vector<void *> all(many);
    for (size_t i = 0; i < many; i++) {
        size_t size = size_of(i), kind = i % kinds;
        all[i] = pairs[kind].make(size);
        CHECK(all[i] != NULL);
        if (!is_text(kind, size)) {
            CHECK(malloc_usable_size(all[i]) >= size);
            fill(all[i], size, i);
        }
    }
    for (int round = 0; round < 2; round++)
        for (size_t i = round; i < many; i += 2) {
            size_t size = size_of(i), kind = i % kinds;
            CHECK(is_text(kind, size) || differing(all[i], size, i) == 0);
            pairs[kind].end(all[i], size);
        }
    std::map<std::string, std::string> texts;
    for (size_t i = 0; i < bytes / 400; i++)
        texts["a key that is longer than a short text " + std::to_string(word(2, i) % 100000)] += std::to_string(i) + ", a longer text";
    size_t sum = 0;
    for (auto &[key, text] : texts)
        sum = sum * 31 + key.size() + text.size();
    /* The C library's own objects, freed by whoever serves free. */
    char *line = NULL;
    size_t room = 0;
    FILE *from = fmemopen((void *)"a line\n", 7, "r");
    CHECK(from != NULL && getline(&line, &room, from) == 7);
    fclose(from);
    free(line);
    char *printed = NULL;
    CHECK(asprintf(&printed, "%zu objects of %zu kinds", many, kinds) > 0);
    printf("%s, %zu texts: %zu\n", printed, texts.size(), sum);
    free(printed);
    return 0;
}

/* Pages that lie alone, each in a block that holds nothing else: these blocks are many times the
 * budget, when paging begins and when memory that was protected by then is made writable.
 * usage: scattered MIB     of pages */
#include <sys/mman.h>

#include "check.h"

enum { PAGE = 4096, STEP = 64 << 10, PART = 4 << 20, EARLY = 192 << 20 };

/* A line of what the kernel says of this process, in KiB. */
static long said(const char *name) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    fclose(file);
    CHECK(kib >= 0);
    return kib;
}

int main(int argc, char **argv) {
    size_t parts = (argc > 1 ? strtoull(argv[1], NULL, 10) : 48) << 20 >> 18;
    char **at = malloc(parts * sizeof *at), *early = mmap(NULL, EARLY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != NULL && early != MAP_FAILED);
    for (size_t from = 0; from < EARLY; from += STEP) {
        CHECK(mprotect(early + from, STEP, PROT_READ | PROT_WRITE) == 0);
        fill(early + from, PAGE, from);
        CHECK(mprotect(early + from, STEP, PROT_READ) == 0);
    }
    for (size_t part = 0; part < parts; part++) {
        at[part] = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at[part] != MAP_FAILED);
        for (size_t page = 0; page < PART; page += STEP) {
            fill(at[part] + page, PAGE, part + page);
            CHECK(munmap(at[part] + page + PAGE, STEP - PAGE) == 0);
        }
    }
    for (size_t part = 0; part < parts; part++)
        for (size_t page = 0; page < PART; page += STEP)
            CHECK(differing(at[part] + page, PAGE, part + page) == 0);
    CHECK(mprotect(early, EARLY, PROT_READ | PROT_WRITE) == 0);
    for (size_t from = 0; from < EARLY; from += STEP)
        CHECK(differing(early + from, PAGE, from) == 0);
    long most = said("VmHWM:"), now = said("VmRSS:");
    fprintf(stderr, "%ld MiB, at most %ld\n", now >> 10, most >> 10);
    CHECK(most - now < 32 << 10);
    printf("%zu pages\n", parts * (PART / STEP));
    return 0;
}

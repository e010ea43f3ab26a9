/* Memory that was huge pages before paging began leaves the program also after a fork, during
 * which the first page of each huge page was written: the kernel refuses to move what is left of
 * a huge page without its first page, until it is split.
 * usage: huge_fork MIB     of all that is touched; a third of it before the fork */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"
#include "page.h"

enum { HUGE = 2 << 20, PASSES = 12 };

/* Pages of a range that are there. */
static size_t present(char *at, size_t bytes) {
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    CHECK(pagemap >= 0);
    size_t pages = 0;
    for (size_t page = 0; page < bytes / PAGE; page++) {
        uint64_t entry;
        CHECK(pread(pagemap, &entry, sizeof entry, ((uintptr_t)at / PAGE + page) * sizeof entry) == sizeof entry);
        pages += entry >> 63;
    }
    close(pagemap);
    return pages;
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 90) << 20;
    size_t first = bytes / 3 / HUGE * HUGE, rest = bytes - first;
    char *early = aligned_alloc(HUGE, first);
    CHECK(early != NULL);
    fill(early, first, 1);
    char *late = malloc(rest);
    CHECK(late != NULL);
    fill(late, HUGE, 2);

    int held[2], status;
    CHECK(pipe(held) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(held[1]);
        _exit(read(held[0], &byte, 1) != 0 || differing(early, first, 1) != 0);
    }
    for (size_t at = 0; at < first; at += HUGE)
        fill(early + at, PAGE, 3);
    close(held[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    for (int pass = 0; pass < PASSES; pass++)
        fill(late, rest, 4 + pass);
    /* Not paged, all is there. */
    size_t left = present(early, first);
    fprintf(stderr, "%zu of %zu pages are left\n", left, first / PAGE);
    CHECK(left <= first / PAGE / 2 || present(late, rest) == rest / PAGE);
    for (size_t at = 0; at < first; at += HUGE) {
        CHECK(differing(early + at, PAGE, 3) == 0);
        for (size_t index = PAGE / 8; index < HUGE / 8; index++)
            CHECK(((uint64_t *)(early + at))[index] == word(1, at / 8 + index));
    }
    CHECK(differing(late, rest, 3 + PASSES) == 0);
    printf("as it was\n");
    return 0;
}

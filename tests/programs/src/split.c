/* Single pages at random places, so that blocks are split while the program runs: with children
 * of forks that read the pages before and after that, and with memory that is discarded, moved and
 * given back afterwards.
 * usage: split MIB TOUCHES [apart [child]]   apart: one page of each block of four, so that single
 *                                            pages need fewer reads, whatever a read costs on the
 *                                            disk; child: the first child is split, too */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

enum { PAGE = 4096, PART = 2 << 20 };

static char *data;
static size_t pages;
static uint64_t *version;
static int apart;

/* Checks a page, and makes a new version of it. */
static void touch(size_t page, uint64_t by) {
    CHECK(differing(data + page * PAGE, PAGE, page + version[page]) == 0);
    version[page] += by;
    fill(data + page * PAGE, PAGE, page + version[page]);
}

static void check_all(void) {
    for (size_t page = 0; page < pages; page++)
        CHECK(differing(data + page * PAGE, PAGE, page + version[page]) == 0);
}

static void scatter(size_t touches, uint64_t seed) {
    for (size_t i = 0; i < touches; i++) {
        size_t page = word(seed, i) % pages;
        touch(apart ? page / 4 * 4 + page / 4 % 4 : page, pages);
    }
}

/* A child that checks all pages, changes some, and checks them again, while the parent goes on. */
static pid_t child(size_t touches, uint64_t seed) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        check_all();
        scatter(touches, seed);
        check_all();
        _exit(0);
    }
    return pid;
}

static void ended(pid_t pid) {
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 48) << 20, touches = argc > 2 ? strtoull(argv[2], NULL, 10) : 6000;
    pages = bytes / PAGE;
    apart = argc > 3;
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    version = calloc(pages, sizeof *version);
    CHECK(data != MAP_FAILED && version != NULL);
    for (size_t page = 0; page < pages; page++)
        fill(data + page * PAGE, PAGE, page);
    scatter(touches / 8, 1);
    pid_t early = child(argc > 4 ? touches : touches / 8, 2);
    scatter(touches / 8, 3);
    ended(early);
    scatter(touches, 4);
    check_all();
    pid_t late = child(touches / 8, 5);
    scatter(touches / 8, 6);
    ended(late);
    for (size_t at = 0; at < bytes / 8; at += PART + PAGE) {
        CHECK(madvise(data + at, 3 * PAGE, MADV_DONTNEED) == 0);
        CHECK(not_zero(data + at, 3 * PAGE) == 0);
        for (size_t page = at / PAGE; page < at / PAGE + 3; page++)
            fill(data + page * PAGE, PAGE, page + version[page]);
    }
    /* A part that begins within what was a block. */
    char *part = data + bytes / 2 + PAGE, *moved = mremap(part, PART, 2 * PART, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && not_zero(moved + PART, PART) == 0);
    for (size_t i = 0; i < PART / PAGE; i++) {
        size_t page = (part - data) / PAGE + i;
        CHECK(differing(moved + i * PAGE, PAGE, page + version[page]) == 0);
    }
    /* What lies behind the part is in use: it cannot grow where it is. */
    CHECK(moved != part);
    CHECK(mmap(part, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == part);
    memcpy(part, moved, PART);
    CHECK(munmap(moved, 2 * PART) == 0);
    scatter(touches / 8, 7);
    check_all();
    uint64_t sum = 0;
    for (size_t page = 0; page < pages; page++)
        sum = sum * 31 + version[page] + *(uint64_t *)(data + page * PAGE);
    printf("%zu pages, %llx\n", pages, (unsigned long long)sum);
    return 0;
}

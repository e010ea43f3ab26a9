// Maps a file privately, changes the mapping, and checks that it behaves as the kernel's does.
//
//   mapped_private walk FILE SEED ROUNDS   random calls on parts of the mapping
//   mapped_private beside FILE SEED S      while others write to the file for S seconds
//   mapped_private writes FILE SEED S      writes to the file
//   mapped_private once FILE SEED MIB      changes MIB of it, and reads all of it
//   mapped_private forks FILE SEED N       N generations of children change most of it
//   mapped_private moves FILE SEED 0       moves what was opened for writing in two parts
//   mapped_private pages FILE SEED 0       changes single pages of blocks that are split
//
// A twin shows what must be there: the kernel's own private mapping of the same file, at an address
// that the program insists on. All that is done to the mapping is done to the twin.
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
// No block of these tests is larger.
#define CHUNK (64 << 10)

extern char **environ;
static uint64_t state;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t random_below(uint64_t n) {
    return mix(state++) % n;
}

struct both {
    char *paged, *twin;
    size_t len;
    // Whether other mappings lie in it.
    int is_mixed;
};

static int opened(const char *path) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    return fd;
}

static struct both map_both(const char *path, size_t len, off_t offset, int prot) {
    static char *place = (char *)0x300000000000;
    int fd = opened(path);
    // A file in the page cache would be left to the kernel.
    CHECK(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    struct both it = {.len = len};
    it.paged = mmap(NULL, len, prot, MAP_PRIVATE, fd, offset);
    it.twin = mmap(place, len, prot, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, offset);
    CHECK(it.paged != MAP_FAILED && it.twin == place);
    place += (4 * len + (1 << 30)) & ~(size_t)(PAGE - 1);
    close(fd);
    return it;
}

// A mapping is opened for writing: what lies behind `first`, and then the rest.
static void open_both(const struct both *it, size_t first) {
    char *ends[] = {it->paged, it->twin};
    for (int i = 0; i < 2; i++) {
        CHECK(mprotect(ends[i] + first, it->len - first, PROT_READ | PROT_WRITE) == 0);
        if (first) CHECK(mprotect(ends[i], first, PROT_READ | PROT_WRITE) == 0);
    }
}

// A mapping that may be written from the beginning, or is opened for writing later.
static struct both map_somehow(const char *path, size_t len, off_t offset) {
    int late = random_below(2);
    struct both it = map_both(path, len, offset, late ? PROT_READ : PROT_READ | PROT_WRITE);
    if (late) open_both(&it, random_below(2) ? 0 : random_below(len / PAGE) * PAGE);
    return it;
}

static void unmap_both(struct both *it) {
    CHECK(munmap(it->paged, it->len) == 0 && munmap(it->twin, it->len) == 0);
}

static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t expects;

static void on_signal(int signal) {
    if (!expects) _exit(99);
    siglongjmp(back, signal);
}

static int write_raises(volatile char *at) {
    expects = 1;
    int raised = sigsetjmp(back, 1);
    if (raised == 0) *at = *at;
    expects = 0;
    return raised;
}

static int read_raises(volatile char *at) {
    expects = 1;
    int raised = sigsetjmp(back, 1);
    if (raised == 0) (void)*at;
    expects = 0;
    return raised;
}

static void same(const struct both *it, size_t at, size_t size) {
    for (size_t i = at; i < at + size; i += PAGE) {
        size_t part = at + size - i < PAGE ? at + size - i : PAGE;
        if (memcmp(it->paged + i, it->twin + i, part)) {
            fprintf(stderr, "other bytes in page %zu of %zu (%zu from %zu)\n", i / PAGE, it->len / PAGE, size, at);
            abort();
        }
    }
}

static void write_both(const struct both *it, size_t at, size_t size) {
    uint64_t seed = mix(state++);
    char *ends[] = {it->paged, it->twin};
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < size; k++) ends[i][at + k] = (char)mix(seed + k / 8);
    }
}

// The kernel writes to the mapping and reads from it.
static void transfer(const struct both *it, const char *path, size_t at, size_t size) {
    char *ends[] = {it->paged, it->twin};
    off_t from = random_below(1 << 20);
    int fd = opened(path);
    for (int i = 0; i < 2; i++) CHECK(pread(fd, ends[i] + at, size, from) == (ssize_t)size);
    close(fd);
    int out[2];
    char bytes[PAGE];
    CHECK(pipe(out) == 0);
    if (size > PAGE) size = PAGE;
    CHECK(write(out[1], it->paged + at, size) == (ssize_t)size && read(out[0], bytes, size) == (ssize_t)size);
    CHECK(memcmp(bytes, it->twin + at, size) == 0);
    close(out[0]), close(out[1]);
}

static void advise_both(const struct both *it, size_t at, size_t size, int advice) {
    int paged = madvise(it->paged + at, size, advice), error = errno;
    int twin = madvise(it->twin + at, size, advice);
    CHECK(paged == twin && (paged == 0 || error == errno));
}

static void protect_both(const struct both *it, size_t at, size_t size, int prot) {
    CHECK(mprotect(it->paged + at, size, prot) == 0 && mprotect(it->twin + at, size, prot) == 0);
    int raises = prot == PROT_READ ? write_raises(it->paged + at) : read_raises(it->paged + at);
    CHECK(raises == SIGSEGV);
    if (prot == PROT_READ && random_below(2)) {
        same(it, at, size);
        advise_both(it, at, size, MADV_DONTNEED);
    }
    CHECK(mprotect(it->paged + at, size, PROT_READ | PROT_WRITE) == 0);
    CHECK(mprotect(it->twin + at, size, PROT_READ | PROT_WRITE) == 0);
}

// Another mapping lies over a part.
static void map_over(struct both *it, const char *path, size_t at, size_t size) {
    char *ends[] = {it->paged, it->twin};
    int fd = random_below(2) ? opened(path) : -1;
    int flags = MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);
    for (int i = 0; i < 2; i++) {
        CHECK(mmap(ends[i] + at, size, PROT_READ | PROT_WRITE, flags, fd, 0) == ends[i] + at);
    }
    if (fd >= 0) close(fd);
    it->is_mixed = 1;
}

static void move_both(struct both *it) {
    size_t len = random_below(2) ? it->len : PAGE * (1 + random_below(it->len / PAGE));
    char *paged = mremap(it->paged, it->len, len, MREMAP_MAYMOVE);
    char *twin = mremap(it->twin, it->len, len, MREMAP_MAYMOVE);
    CHECK(paged != MAP_FAILED && twin != MAP_FAILED);
    it->paged = paged, it->twin = twin, it->len = len;
    if (random_below(2)) {
        // To another place, which is larger.
        char *place = mmap(NULL, len + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(place != MAP_FAILED);
        paged = mremap(it->paged, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        CHECK(paged == place && munmap(place + len, PAGE) == 0);
        it->paged = paged;
    }
}

static void calls(struct both *, const char *, int, int);

static void fork_both(struct both *it, const char *path, int depth) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        same(it, 0, it->len);
        state = mix(state);
        calls(it, path, 5, depth + 1);
        same(it, 0, it->len);
        _exit(0);
    }
    calls(it, path, 3, 2);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Calls on parts of the mapping, at most some of which give it back to the kernel.
static void calls(struct both *it, const char *path, int count, int depth) {
    for (int i = 0; i < count; i++) {
        size_t pages = it->len / PAGE, first = random_below(pages), part = 1 + random_below(pages - first);
        if (random_below(3)) part = 1 + random_below(part < 20 ? part : 20);
        size_t at = first * PAGE, size = part * PAGE;
        switch (random_below(random_below(4) ? 11 : 21)) {
        case 0: case 1: {
            size_t inside = at + random_below(PAGE);
            write_both(it, inside, size - PAGE ? size - PAGE : 8);
            break;
        }
        case 2:
            for (int k = 0; k < 50; k++) write_both(it, random_below(it->len - 8), 8);
            break;
        case 3: same(it, at, size); break;
        case 4: case 5: advise_both(it, at, size, MADV_DONTNEED); break;
        case 6: transfer(it, path, at, size > 1 << 20 ? 1 << 20 : size); break;
        case 7: advise_both(it, at, size, MADV_WILLNEED); break;
        case 8: CHECK(msync(it->paged + at, size, MS_SYNC) == 0); break;
        case 9: if (!it->is_mixed) advise_both(it, at, size, MADV_FREE); break;
        case 10: CHECK(madvise(it->paged + at, size, MADV_PAGEOUT) == 0); break;
        // With random advice for most of the mapping, blocks are split.
        case 11:
            if (random_below(2)) advise_both(it, at, size, MADV_SEQUENTIAL);
            else advise_both(it, 0, it->len, MADV_RANDOM);
            break;
        case 12: protect_both(it, at, size, PROT_READ); break;
        case 13: protect_both(it, at, size, PROT_NONE); break;
        case 14:
            if (size > 1 << 20) size = PAGE;
            CHECK(mlock(it->paged + at, size) == 0 && mlock(it->twin + at, size) == 0);
            if (!it->is_mixed) advise_both(it, at, size, MADV_DONTNEED);
            CHECK(munlock(it->paged + at, size) == 0 && munlock(it->twin + at, size) == 0);
            break;
        case 15: case 16: if (depth < 2) fork_both(it, path, depth); break;
        case 17: case 18: if (!it->is_mixed) move_both(it); break;
        case 19: if (it->len > 100 * PAGE) map_over(it, path, at, size); break;
        case 20: {
            // The ends are unmapped.
            size_t less = PAGE * random_below(pages / 4 + 1);
            CHECK(munmap(it->paged + it->len - less, less) == 0 || less == 0);
            CHECK(munmap(it->twin + it->len - less, less) == 0 || less == 0);
            it->len -= less;
            less = PAGE * random_below(pages / 8 + 1);
            if (less >= it->len || less == 0) break;
            CHECK(munmap(it->paged, less) == 0 && munmap(it->twin, less) == 0);
            it->paged += less, it->twin += less, it->len -= less;
            break;
        }
        }
        if (random_below(4) == 0) same(it, 0, it->len);
    }
}

static size_t size_of(const char *path) {
    struct stat status;
    CHECK(stat(path, &status) == 0);
    return status.st_size;
}

static struct both map_all(const char *path, int prot) {
    return map_both(path, size_of(path) / CHUNK * CHUNK, 0, prot);
}

static void walk(const char *path, int rounds) {
    for (int round = 0; round < rounds; round++) {
        size_t offset = random_below(8) * PAGE, len = size_of(path) - offset;
        if (random_below(3) == 0) len -= random_below(len / 2);
        len = (len + PAGE - 1) / PAGE * PAGE;
        // The first mapping may be changed from the beginning, and is.
        struct both it = round ? map_somehow(path, len, offset) : map_both(path, len, offset, PROT_READ | PROT_WRITE);
        write_both(&it, 0, 8);
        calls(&it, path, 40, 0);
        if (round == 0) fork_both(&it, path, 1);
        same(&it, 0, it.len);
        unmap_both(&it);
        char *other = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(other != MAP_FAILED);
        for (size_t at = 0; at < len; at += 512) CHECK(other[at] == 0);
        CHECK(madvise(other, len, MADV_FREE) == 0 && munmap(other, len) == 0);
    }
}

static void writes(const char *path, int seconds) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    size_t size = size_of(path);
    for (time_t until = time(NULL) + seconds; time(NULL) < until;) {
        int fd = open(path, O_RDWR);
        CHECK(fd >= 0);
        for (int i = random_below(20); i >= 0; i--) {
            uint64_t word = mix(state++);
            CHECK(pwrite(fd, &word, sizeof word, random_below(size / 8) * 8) == sizeof word);
        }
        close(fd);
        usleep(random_below(2) ? 300000 : random_below(30000));
    }
}

struct counter {
    volatile uint64_t *words;
    size_t count;
    volatile int over;
};

// A thread's own part of the mapping, which it fills and checks again and again.
static void *count_up(void *argument) {
    struct counter *it = argument;
    uint64_t seed = (uintptr_t)&seed, passes = 0;
    for (size_t i = 0; i < it->count; i++) it->words[i] = i;
    while (!it->over) {
        for (int k = 0; k < 2000; k++) {
            size_t i = mix(seed++) % it->count;
            CHECK(it->words[i] % it->count == i);
            it->words[i] += it->count;
        }
        passes++;
        usleep(500);
    }
    for (size_t i = 0; i < it->count; i++) CHECK(it->words[i] % it->count == i);
    return (void *)(uintptr_t)passes;
}

// Words that nobody has changed here are read twice while others write to the file.
static int is_same(const struct both *it, size_t at) {
    volatile uint64_t *paged = (uint64_t *)(it->paged + at), *twin = (uint64_t *)(it->twin + at);
    for (int tries = 0; tries < 100; tries++) {
        uint64_t before = *twin, here = *paged;
        if (here == before || *twin != before) return 1;
        usleep(1000);
    }
    return 0;
}

static void beside(const char *program, const char *path, const char *seed, const char *seconds) {
    // One mapping is changed for certain before it goes back to the kernel.
    struct both first = map_all(path, PROT_READ | PROT_WRITE);
    write_both(&first, 0, CHUNK);
    pid_t writer;
    char *arguments[] = {(char *)program, "writes", (char *)path, (char *)seed, (char *)seconds, NULL};
    CHECK(posix_spawn(&writer, program, NULL, NULL, arguments, environ) == 0);
    size_t own = 4 << 20;
    int status;
    while (waitpid(writer, &status, WNOHANG) == 0) {
        struct both it = map_somehow(path, size_of(path) / CHUNK * CHUNK, 0);
        struct counter counter = {(uint64_t *)(it.paged + it.len - own), own / 8, 0};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, count_up, &counter) == 0);
        struct both rest = {it.paged, it.twin, it.len - own, 0};
        for (int i = 0; i < 60; i++) {
            // Whole chunks are changed, so that no block is changed only in part.
            size_t chunk = random_below(rest.len / CHUNK) * CHUNK;
            if (random_below(3) == 0) write_both(&rest, chunk, CHUNK);
            if (random_below(6) == 0) advise_both(&rest, chunk, CHUNK, MADV_DONTNEED);
            for (int k = 0; k < 300; k++) CHECK(is_same(&rest, random_below(rest.len / 8) * 8));
            if (random_below(30) == 0) {
                pid_t child = fork();
                CHECK(child >= 0);
                if (child == 0) {
                    for (int k = 0; k < 3000; k++) CHECK(is_same(&rest, random_below(rest.len / 8) * 8));
                    for (int k = 0; k < 20; k++) write_both(&rest, random_below(rest.len / CHUNK) * CHUNK, CHUNK);
                    _exit(0);
                }
                int of_child;
                CHECK(waitpid(child, &of_child, 0) == child && WIFEXITED(of_child) && WEXITSTATUS(of_child) == 0);
            }
            usleep(random_below(10000));
        }
        counter.over = 1;
        void *passes;
        CHECK(pthread_join(thread, &passes) == 0 && passes != NULL);
        unmap_both(&it);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    same(&first, 0, CHUNK);
    unmap_both(&first);
}

static void once(const char *path, size_t change) {
    size_t len = size_of(path) / PAGE * PAGE;
    int fd = opened(path);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    uint64_t *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    for (size_t i = 0; i < change / 8; i += PAGE / 8) at[i] = i;
    uint64_t bytes[PAGE / 8];
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < len / 8; i += PAGE / 8) {
            CHECK(pread(fd, bytes, PAGE, i * 8) == PAGE);
            if (i < change / 8) bytes[0] = i;
            CHECK(memcmp(at + i, bytes, PAGE) == 0);
        }
    }
    // The file has none of it.
    CHECK(pread(fd, bytes, PAGE, PAGE) == PAGE && (change == 0 || bytes[0] != PAGE / 8));
}

static void expect_end(pid_t child) {
    int status;
    CHECK(child >= 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Changes three of four chunks, so that the rest are many parts of the file.
static void change_most(const struct both *it) {
    for (size_t at = 0; at < it->len; at += CHUNK) {
        if (at / CHUNK % 4) write_both(it, at, CHUNK);
    }
    same(it, 0, it->len);
}

static void generations(const struct both *it, int left) {
    if (left == 0) return;
    pid_t child = fork();
    if (child == 0) {
        same(it, 0, it->len);
        change_most(it);
        generations(it, left - 1);
        same(it, 0, it->len);
        _exit(0);
    }
    expect_end(child);
    same(it, 0, it->len);
}

static void forks(const char *path, int count) {
    struct both it = map_all(path, PROT_READ | PROT_WRITE);
    change_most(&it);
    generations(&it, count);
    unmap_both(&it);
}

static void moves(const char *path) {
    struct both it = map_all(path, PROT_READ);
    open_both(&it, 10 * CHUNK);
    for (int k = 0; k < 100; k++) write_both(&it, random_below(it.len - 8), 8);
    pid_t child = fork();
    if (child == 0) _exit(0);
    expect_end(child);
    for (int k = 0; k < 100; k++) write_both(&it, random_below(it.len - 8), 8);
    char *place = mmap(NULL, it.len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(place != MAP_FAILED);
    CHECK(mremap(it.paged, it.len, it.len, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    it.paged = place;
    same(&it, 0, it.len);
    advise_both(&it, 5 * CHUNK, 10 * CHUNK, MADV_DONTNEED);
    same(&it, 0, it.len);
    unmap_both(&it);
}

static void pages(const char *path) {
    struct both it = map_all(path, PROT_READ | PROT_WRITE);
    size_t part = 8 << 20;
    // Most of the memory is read in random order: blocks are split.
    advise_both(&it, 0, it.len, MADV_RANDOM);
    for (size_t at = PAGE; at < part; at += 4 * PAGE) write_both(&it, at, 8);
    pid_t child = fork();
    if (child == 0) {
        same(&it, 0, it.len);
        advise_both(&it, 0, part / 2, MADV_DONTNEED);
        same(&it, 0, it.len);
        _exit(0);
    }
    expect_end(child);
    same(&it, 0, it.len);
    protect_both(&it, 0, part / 4, PROT_NONE);
    advise_both(&it, part / 2, part / 2, MADV_DONTNEED);
    same(&it, 0, it.len);
    unmap_both(&it);
}

int main(int count, char **arguments) {
    CHECK(count >= 5);
    wait_if_asked();
    state = strtoull(arguments[3], NULL, 10) << 32;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    if (strcmp(arguments[1], "walk") == 0) walk(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "beside") == 0) beside(arguments[0], arguments[2], arguments[3], arguments[4]);
    if (strcmp(arguments[1], "writes") == 0) writes(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "once") == 0) once(arguments[2], (size_t)atoi(arguments[4]) << 20);
    if (strcmp(arguments[1], "forks") == 0) forks(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "moves") == 0) moves(arguments[2]);
    if (strcmp(arguments[1], "pages") == 0) pages(arguments[2]);
    puts("ok");
    return 0;
}

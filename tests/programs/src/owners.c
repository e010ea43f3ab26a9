/* Memory that several pagers own: streams, system calls, advice, rights, moves and forks that cross
 * the edges between owners, which lie 4 MiB apart. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define THREADS 2

static size_t bytes;
static char *memory;

static char *map(size_t len) {
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* One thread's way through all memory, there and back twice: every second page is its own. */
static void *stream(void *argument) {
    size_t number = (size_t)argument, pages = bytes / 4096;
    for (size_t pass = 0; pass < 4; pass++)
        for (size_t i = number; i < pages; i += THREADS) {
            size_t page = pass % 2 == 0 ? i : pages - THREADS + 2 * number - i;
            uint64_t *words = (uint64_t *)(memory + page * 4096);
            for (size_t at = 0; at < 512; at += 64)
                words[at]++;
        }
    return NULL;
}

static void streams(void) {
    pthread_t threads[THREADS];
    fill(memory, bytes, 1);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, stream, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    const uint64_t *words = (const uint64_t *)memory;
    for (size_t at = 0; at < bytes / 8; at++)
        CHECK(words[at] == word(1, at) + (at % 64 == 0 ? 4 : 0));
    puts("streams: ok");
}

/* The kernel reads and writes memory of several owners in one call. */
static void calls(void) {
    size_t len = 11 * MIB;
    int file = memfd_create("copy", 0);
    CHECK(file >= 0);
    fill(memory, bytes, 2);
    CHECK(write(file, memory + 3 * MIB, len) == (ssize_t)len);
    memset(memory + 3 * MIB, 0, len);
    CHECK(pread(file, memory + 3 * MIB, len, 0) == (ssize_t)len);
    CHECK(close(file) == 0);
    CHECK(differing(memory, bytes, 2) == 0);
    puts("calls: ok");
}

static void advice(void) {
    fill(memory, bytes, 3);
    CHECK(madvise(memory + 2 * MIB, 9 * MIB, MADV_WILLNEED) == 0);
    CHECK(madvise(memory + 2 * MIB, 9 * MIB, MADV_DONTNEED) == 0);
    CHECK(not_zero(memory + 2 * MIB, 9 * MIB) == 0);
    fill(memory, 11 * MIB, 3);
    CHECK(differing(memory, bytes, 3) == 0);
    puts("advice: ok");
}

static void rights(void) {
    CHECK(mprotect(memory + MIB, 10 * MIB, PROT_READ) == 0);
    CHECK(differing(memory, bytes, 3) == 0);
    CHECK(mprotect(memory + MIB, 10 * MIB, PROT_READ | PROT_WRITE) == 0);
    fill(memory, bytes, 4);
    CHECK(differing(memory, bytes, 4) == 0);
    puts("rights: ok");
}

static void moves(void) {
    char *more = map(6 * MIB);
    fill(more, 6 * MIB, 5);
    more = mremap(more, 6 * MIB, 13 * MIB, MREMAP_MAYMOVE);
    CHECK(more != MAP_FAILED);
    CHECK(differing(more, 6 * MIB, 5) == 0 && not_zero(more + 6 * MIB, 7 * MIB) == 0);
    fill(more, 13 * MIB, 6);
    CHECK(munmap(more + 3 * MIB, 5 * MIB) == 0);
    CHECK(differing(more, 3 * MIB, 6) == 0);
    CHECK(munmap(more, 3 * MIB) == 0 && munmap(more + 8 * MIB, 5 * MIB) == 0);
    puts("moves: ok");
}

/* Runs in a child while the parent changes all that the child is to see. */
static void forks(void) {
    fill(memory, bytes, 7);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(differing(memory, bytes, 7) == 0);
        fill(memory, bytes / 2, 8);
        pid_t next = fork();
        CHECK(next >= 0);
        if (next == 0) {
            CHECK(differing(memory, bytes / 2, 8) == 0);
            streams();
            _exit(11);
        }
        int status;
        CHECK(waitpid(next, &status, 0) == next && WIFEXITED(status) && WEXITSTATUS(status) == 11);
        CHECK(differing(memory, bytes / 2, 8) == 0);
        _exit(12);
    }
    fill(memory, bytes, 9);
    CHECK(differing(memory, bytes, 9) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 12);
    CHECK(differing(memory, bytes, 9) == 0);
    puts("forks: ok");
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    bytes = strtoul(argv[1], NULL, 10) * MIB;
    memory = map(bytes);
    streams();
    calls();
    advice();
    rights();
    moves();
    fflush(stdout);
    forks();
    return 0;
}

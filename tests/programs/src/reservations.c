/* Reservations by the terabyte of which parts are opened, as runtimes make them: each way that they
 * have, with data beyond the budget.
 *
 * usage: reservations MIB     data of each way
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define TIB ((size_t)1 << 40)
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define RESERVE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static sigjmp_buf refused;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(refused, 1);
}

static int is_closed(volatile char *at)
{
    if (sigsetjmp(refused, 1))
        return 1;
    (void)*at;
    return 0;
}

static char *reserve(char *hint, size_t bytes)
{
    char *at = mmap(hint, bytes, PROT_NONE, RESERVE, -1, 0);
    CHECK(at != MAP_FAILED && is_closed(at) && is_closed(at + bytes / 2) && is_closed(at + bytes - 1));
    return at;
}

static void in_a_child(void (*checks)(char *, size_t), char *at, size_t bytes)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        checks(at, bytes);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* GHC: a terabyte; blocks of a megabyte are opened by MAP_FIXED, given back by MADV_DONTNEED,
 * closed by a mapping over them. */
static void megablocks(char *at, size_t bytes)
{
    for (size_t index = 0; index < bytes / MIB; index++) {
        char *block = at + index * 3 * MIB;
        CHECK(index % 4 == 1 ? is_closed(block) : differing(block, MIB, index) == 0);
        CHECK(is_closed(block + MIB) && is_closed(block + 3 * MIB - 1));
    }
}

static void by_mapping(size_t bytes)
{
    char *at = reserve((char *)0x4200000000, TIB + MIB);
    for (size_t index = 0; index < bytes / MIB; index++) {
        char *block = at + index * 3 * MIB;
        CHECK(mmap(block, MIB, READ_WRITE, RESERVE | MAP_FIXED, -1, 0) == block);
        fill(block, MIB, index);
    }
    for (size_t index = 0; index < bytes / MIB; index++) {
        char *block = at + index * 3 * MIB;
        CHECK(differing(block, MIB, index) == 0);
        if (index % 4 == 1)
            CHECK(mmap(block, MIB, PROT_NONE, RESERVE | MAP_FIXED, -1, 0) == block);
        if (index % 4 == 2) {
            CHECK(madvise(block, MIB, MADV_DONTNEED) == 0 && not_zero(block, MIB) == 0);
            fill(block, MIB, index);
        }
    }
    in_a_child(megablocks, at, bytes);
    megablocks(at, bytes);
    CHECK(munmap(at, TIB + MIB) == 0);
}

/* .NET: parts are opened by mprotect, in order and by the page, and closed again by mprotect
 * once they are dropped. */
static void in_order(char *at, size_t bytes)
{
    CHECK(differing(at, bytes / 2, 1) == 0 && is_closed(at + bytes / 2));
}

static void by_rights(size_t bytes)
{
    char *at = reserve(NULL, TIB / 4);
    uint64_t *words = (uint64_t *)at;
    for (size_t done = 0, step; done < bytes; done += step) {
        step = PAGE * (1 + done / PAGE % 37);
        if (done + step > bytes)
            step = bytes - done;
        CHECK(mprotect(at + done, step, READ_WRITE) == 0);
        for (size_t i = done / 8; i < (done + step) / 8; i++)
            words[i] = word(1, i);
        CHECK(is_closed(at + done + step));
    }
    CHECK(differing(at, bytes, 1) == 0);
    CHECK(madvise(at + bytes / 2, bytes / 2, MADV_DONTNEED) == 0);
    CHECK(mprotect(at + bytes / 2, TIB / 4 - bytes / 2, PROT_NONE) == 0);
    in_order(at, bytes);
    in_a_child(in_order, at, bytes);
    CHECK(mprotect(at + bytes / 2, bytes / 2, READ_WRITE) == 0 && not_zero(at + bytes / 2, bytes / 2) == 0);
    CHECK(munmap(at, TIB / 4) == 0);
}

/* MariaDB: terabytes, opened from the beginning; the end of what is open moves. */
static void at_the_end(size_t bytes)
{
    char *at = reserve(NULL, 2 * TIB);
    CHECK(mprotect(at, bytes / 2, READ_WRITE) == 0);
    fill(at, bytes / 2, 2);
    CHECK(mprotect(at, bytes, READ_WRITE) == 0 && not_zero(at + bytes / 2, bytes / 2) == 0);
    fill(at, bytes, 3);
    CHECK(munmap(at + bytes, TIB) == 0 && is_closed(at + 2 * TIB - 1) && differing(at, bytes, 3) == 0);
    CHECK(munmap(at, bytes) == 0 && munmap(at + bytes + TIB, TIB - bytes) == 0);
}

/* JavaScript: more than is wanted is reserved, and its ends are given back, so that it lies on a
 * multiple of something. */
static void aligned(size_t bytes)
{
    size_t large = (size_t)4 << 30, whole = TIB + large;
    char *at = reserve(NULL, whole);
    char *from = (char *)(((uintptr_t)at + large - 1) / large * large);
    if (from > at)
        CHECK(munmap(at, from - at) == 0);
    if (from + TIB < at + whole)
        CHECK(munmap(from + TIB, at + whole - from - TIB) == 0);
    CHECK(mprotect(from + TIB - bytes, bytes, READ_WRITE) == 0);
    fill(from + TIB - bytes, bytes, 4);
    CHECK(is_closed(from) && differing(from + TIB - bytes, bytes, 4) == 0);
    /* Pages that are executable, read-only, or a file's. */
    CHECK(mprotect(from, 8 * PAGE, PROT_READ | PROT_EXEC) == 0 && not_zero(from, 8 * PAGE) == 0);
    int fd = memfd_create("file", 0);
    CHECK(fd >= 0 && ftruncate(fd, MIB) == 0);
    CHECK(mmap(from + MIB, MIB, READ_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == from + MIB);
    fill(from + MIB, MIB, 5);
    char *back = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(back != MAP_FAILED && differing(back, MIB, 5) == 0 && munmap(back, MIB) == 0 && close(fd) == 0);
    CHECK(munmap(from, TIB) == 0);
}

/* All of it may be read and written from the start; it is touched here and there. */
#define PIECE ((size_t)256 << 10)

static void open_at_once(size_t bytes)
{
    size_t whole = TIB / 2, pieces = bytes / PIECE, apart = whole / pieces / PAGE * PAGE;
    char *at = mmap(NULL, whole, READ_WRITE, RESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t index = 0; index < pieces; index++)
        fill(at + index * apart, PIECE, index);
    for (size_t index = 0; index < pieces; index++)
        CHECK(differing(at + index * apart, PIECE, index) == 0 && not_zero(at + index * apart + PIECE, PAGE) == 0);
    CHECK(madvise(at, whole, MADV_DONTNEED) == 0 && not_zero(at, MIB) == 0 && not_zero(at + apart, MIB) == 0);
    CHECK(mprotect(at, whole, PROT_NONE) == 0 && is_closed(at + apart));
    CHECK(munmap(at, whole) == 0);
}

/* A program that reserves again and again does not run out of addresses, and spends little time. */
static void often(void)
{
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (int round = 0; round < 200; round++) {
        char *at = reserve(NULL, TIB), *high = at + TIB - PAGE;
        CHECK(mprotect(high, PAGE, READ_WRITE) == 0 && not_zero(high, PAGE) == 0);
        fill(high, PAGE, round);
        CHECK(munmap(at, TIB) == 0);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    CHECK(to.tv_sec - from.tv_sec < 5);
}

#define THREADS 4
#define SLOTS 480
#define SLOT (10 * PAGE)

struct worker {
    pthread_t thread;
    char *at;
    int number;
};

/* Every fourth slot is this thread's. Slots end within blocks: neighbours are opened and closed
 * by others meanwhile. */
static void *opens_and_closes(void *argument)
{
    struct worker *worker = argument;
    uint64_t series[SLOTS] = {0}, state = worker->number;
    for (int step = 0; step < 3000; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int slot = (state >> 33) % (SLOTS / THREADS) * THREADS + worker->number;
        char *at = worker->at + slot * SLOT;
        if (series[slot])
            CHECK(differing(at, SLOT, series[slot]) == 0);
        else if (state >> 62 & 1)
            CHECK(mprotect(at, SLOT, READ_WRITE) == 0 && not_zero(at, SLOT) == 0);
        else
            CHECK(mmap(at, SLOT, READ_WRITE, RESERVE | MAP_FIXED, -1, 0) == at && not_zero(at, SLOT) == 0);
        if (state >> 61 & 1) {
            series[slot] = 1 + (state >> 40);
            fill(at, SLOT, series[slot]);
        } else {
            CHECK(mmap(at, SLOT, PROT_NONE, RESERVE | MAP_FIXED, -1, 0) == at);
            series[slot] = 0;
        }
    }
    for (int slot = worker->number; slot < SLOTS; slot += THREADS)
        CHECK(!series[slot] || differing(worker->at + slot * SLOT, SLOT, series[slot]) == 0);
    return NULL;
}

static void by_threads(void)
{
    struct worker workers[THREADS];
    char *at = reserve(NULL, TIB);
    for (int number = 0; number < THREADS; number++) {
        workers[number].number = number;
        workers[number].at = at + TIB / 3 / PAGE * PAGE;
        CHECK(pthread_create(&workers[number].thread, NULL, opens_and_closes, &workers[number]) == 0);
    }
    for (int number = 0; number < THREADS; number++)
        CHECK(pthread_join(workers[number].thread, NULL) == 0);
    CHECK(munmap(at, TIB) == 0);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) * MIB;
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    by_mapping(bytes);
    puts("opened by mappings: ok");
    by_rights(bytes);
    puts("opened by rights: ok");
    at_the_end(bytes);
    puts("opened further and further: ok");
    aligned(bytes);
    puts("cut to be aligned: ok");
    open_at_once(bytes);
    puts("open from the start: ok");
    often();
    puts("often: ok");
    by_threads();
    puts("by threads: ok");
    return 0;
}

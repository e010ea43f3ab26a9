/* Random calls of the madvise family, and a few others, by the C library, by syscall() and by the
 * instruction, on memory of several threads, against a model: what each page holds.
 *
 * Pages of different threads lie in the same blocks. Half of the memory is a static array.
 *
 * usage: direct_walk CALLS [SEED]     the seed is printed
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE ((size_t)4096)
#define THREADS 4
/* Pages of a thread that lie together; no multiple of a block's. */
#define STRIPE 5
#define PAGES ((size_t)STRIPE * THREADS * 180)
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static char array[PAGES * PAGE] __attribute__((aligned(4096)));
static char *areas[2] = {array};
/* What the words of each page are; 0: zeros. */
static uint64_t series[2][PAGES];
static size_t calls;
static uint64_t seed;

struct walk {
    size_t number;
    uint64_t state;
};

static uint64_t chance(struct walk *walk, uint64_t of)
{
    walk->state = walk->state * 6364136223846793005u + 1442695040888963407u;
    return (walk->state >> 33) % of;
}

static void check_page(int area, size_t page)
{
    char *at = areas[area] + page * PAGE;
    uint64_t now = series[area][page];
    CHECK((now ? differing(at, PAGE, now) : not_zero(at, PAGE)) == 0);
}

/* A call by an instruction of the program's own. */
static long instruction(long number, void *at, size_t bytes, long third)
{
#if defined(__x86_64__)
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "0"(number), "D"(at), "S"(bytes), "d"(third) : "rcx", "r11", "memory");
    return answer;
#else
    return syscall(number, at, bytes, third);
#endif
}

static long advise(struct walk *walk, void *at, size_t bytes, int advice)
{
    switch (chance(walk, 4)) {
    case 0:
        return madvise(at, bytes, advice);
    case 1:
        return syscall(SYS_madvise, at, bytes, advice);
    default:
        return instruction(SYS_madvise, at, bytes, advice);
    }
}

static void removes(struct walk *walk, int area, size_t from, size_t count)
{
    char *at = areas[area] + from * PAGE;
    int locked = chance(walk, 8) == 0;
    long answer = advise(walk, at, count * PAGE, locked ? MADV_DONTNEED_LOCKED : MADV_DONTNEED);
    /* Older kernels do not know the second one. */
    CHECK(answer == 0 || locked);
    if (answer != 0)
        return;
    for (size_t page = from; page < from + count; page++)
        series[area][page] = 0;
    if (chance(walk, 2))
        check_page(area, from + chance(walk, count));
}

/* What is freed may be there or not, until it is written to. */
static void frees(struct walk *walk, int area, size_t from, size_t count)
{
    CHECK(advise(walk, areas[area] + from * PAGE, count * PAGE, MADV_FREE) == 0);
    for (size_t page = from; page < from + count; page++) {
        series[area][page] = 1 + chance(walk, 1 << 30);
        fill(areas[area] + page * PAGE, PAGE, series[area][page]);
    }
}

static void maps(struct walk *walk, size_t from, size_t count)
{
    char *at = areas[1] + from * PAGE;
    size_t bytes = count * PAGE;
    switch (chance(walk, 3)) {
    case 0:
        CHECK((char *)syscall(SYS_mmap, at, bytes, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0L) == at);
        break;
    case 1:
        CHECK(syscall(SYS_mprotect, at, bytes, PROT_READ) == 0);
        for (size_t page = from; page < from + count; page++)
            check_page(1, page);
        CHECK(syscall(SYS_mprotect, at, bytes, READ_WRITE) == 0);
        return;
    default:
        CHECK(syscall(SYS_munmap, at, bytes) == 0);
        CHECK((char *)syscall(SYS_mmap, at, bytes, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0L) == at);
    }
    for (size_t page = from; page < from + count; page++)
        series[1][page] = 0;
}

/* The child, too, removes some of its own, and says of the parent's that they are cold. */
static void forks(struct walk *walk)
{
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        long process = syscall(SYS_pidfd_open, parent, 0);
        struct iovec cold = {areas[1], PAGES * PAGE};
        if (process >= 0)
            syscall(SYS_process_madvise, process, &cold, 1UL, MADV_COLD, 0UL);
        size_t from = walk->number * STRIPE;
        CHECK(instruction(SYS_madvise, areas[1] + from * PAGE, STRIPE * PAGE, MADV_DONTNEED) == 0);
        for (size_t page = from; page < from + STRIPE; page++)
            series[1][page] = 0;
        for (int area = 0; area < 2; area++)
            for (size_t stripe = walk->number; stripe < PAGES / STRIPE; stripe += THREADS)
                for (size_t page = stripe * STRIPE; page < (stripe + 1) * STRIPE; page++)
                    check_page(area, page);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *walks(void *argument)
{
    struct walk *walk = argument;
    for (size_t call = 0; call < calls; call++) {
        int area = chance(walk, 2);
        size_t stripe = chance(walk, PAGES / STRIPE / THREADS) * THREADS + walk->number;
        size_t first = chance(walk, STRIPE), from = stripe * STRIPE + first;
        size_t count = 1 + chance(walk, STRIPE - first);
        switch (chance(walk, 10)) {
        case 0:
        case 1:
            removes(walk, area, from, count);
            break;
        case 2:
            /* What is freed by the instruction, and stays, does not leave for a second or two. */
            if (chance(walk, 20) == 0)
                frees(walk, area, from, count);
            break;
        case 3:
            if (chance(walk, 10) == 0)
                maps(walk, from, count);
            break;
        case 4:
            if (walk->number == 0 && chance(walk, 200) == 0)
                forks(walk);
            break;
        default:
            for (size_t page = from; page < from + count; page++) {
                check_page(area, page);
                if (chance(walk, 2)) {
                    series[area][page] = 1 + chance(walk, 1 << 30);
                    fill(areas[area] + page * PAGE, PAGE, series[area][page]);
                }
            }
        }
    }
    return NULL;
}

static void check_all(void)
{
    for (int area = 0; area < 2; area++)
        for (size_t page = 0; page < PAGES; page++)
            check_page(area, page);
}

int main(int argc, char **argv)
{
    calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)getpid();
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    areas[1] = mmap(NULL, PAGES * PAGE, READ_WRITE, PRIVATE, -1, 0);
    CHECK(areas[1] != MAP_FAILED);
    struct walk all[THREADS];
    pthread_t threads[THREADS];
    for (size_t round = 0; round < 2; round++) {
        for (size_t number = 0; number < THREADS; number++) {
            all[number] = (struct walk){number, seed * 8 + round * 4 + number};
            CHECK(pthread_create(&threads[number], NULL, walks, &all[number]) == 0);
        }
        for (size_t number = 0; number < THREADS; number++)
            CHECK(pthread_join(threads[number], NULL) == 0);
        check_all();
        /* All of the first half, in and out, at once. */
        for (int area = 0; area < 2; area++) {
            CHECK(instruction(SYS_madvise, areas[area] + PAGE, PAGES / 2 * PAGE, MADV_DONTNEED) == 0);
            memset(&series[area][1], 0, PAGES / 2 * sizeof series[area][0]);
        }
        check_all();
    }
    printf("%zu calls\n", calls);
    return 0;
}

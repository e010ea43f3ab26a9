/* Copies between arrays of buffers by process_vm_readv and process_vm_writev, drawn from a seed:
 * within this process, named by any of its threads, and with a child, which does the same with its
 * parent. The arrays and buffers are of all sizes, overlap, are not there, or are refused. What the
 * kernel answers natively, it must answer here, and the same bytes must arrive. The output lists
 * the answers, and hashes of what was written to.
 *
 * The kernel reads both arrays before it copies. So it changes nothing if the copies reach them, or
 * if a thread or a handler changes them after the first byte has arrived.
 *
 * usage: process_memory MIB CALLS SEED
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE 4096ul
#define SHARED (2ul << 20)
#define MOST 1024
#define COUNT(of) (sizeof(of) / sizeof *(of))

static char *zone, *shared;
static size_t bytes;
static uint64_t state, drawn;
static int begins[2];
static volatile pid_t other_thread;

static uint64_t draw(uint64_t below) { return (state = word(state, drawn++)) % below; }

static size_t length(size_t most) {
    switch (draw(24)) {
    case 0: return 0;
    case 1: case 2: case 3: return draw(64);
    case 4: case 5: return PAGE * draw(4);
    case 6: case 7: return draw(most);
    case 8: return draw(400) ? draw(PAGE) : (size_t)SSIZE_MAX;
    case 9: return draw(200) ? draw(PAGE) : (size_t)SSIZE_MAX + 1 + draw(2) * (SSIZE_MAX - 9ul);
    default: return draw(most / 32 + 1);
    }
}

/* Memory behind which lies a page that cannot be touched, and in its middle one that cannot be
 * written. */
static char *mapped(size_t size, int kind, uint64_t series) {
    char *at = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fill(at, size, series);
    CHECK(mprotect(at + size, PAGE, PROT_NONE) == 0 && mprotect(at + size / 2, PAGE, PROT_READ) == 0);
    return at;
}

/* Draws an array of buffers. */
static long buffers(struct iovec *array, char *memory, size_t size, int may_be_bad) {
    static const unsigned long nowhere[] = {0, 8, 1ul << 47, 1ul << 62, -PAGE, -1ul};
    long count = draw(3) ? (long)draw(6) + 1 : draw(20) ? (long)draw(60) : (long)draw(MOST + 1);
    size_t most = draw(3) ? size / 2 : size / 64;
    for (long i = 0; i < count; i++) {
        size_t len = length(count > 60 ? 3 * PAGE : most);
        array[i] = (struct iovec){memory + draw(len < size ? size - len : 1), len};
        if (may_be_bad && draw(count > 8 ? 40 : 12) == 0)
            array[i].iov_base = draw(3) ? memory + size / (draw(2) + 1) - draw(2) * draw(5000) : (void *)nowhere[draw(COUNT(nowhere))];
        if (may_be_bad && draw(1500) == 0)
            array[i].iov_len = draw(2) ? 1ul << 52 : 1ul << 62;
    }
    if (may_be_bad && draw(30) == 0)
        return ((const long[]){0, 0, MOST + 1, -1, INT_MAX})[draw(5)];
    return count;
}

/* A hash of the memory to which an array points, as far as it is this test's. */
static uint64_t hash(const struct iovec *array, long count) {
    uint64_t sum = 14695981039346656037ul;
    for (long i = 0; i < count && i < MOST; i++) {
        const char *at = array[i].iov_base, *ends[] = {zone + bytes, shared + SHARED};
        size_t len = array[i].iov_len;
        for (int which = 0; which < 2; which++)
            if (at >= (which ? shared : zone) && at < ends[which])
                for (const char *end = len < (size_t)(ends[which] - at) ? at + len : ends[which]; at < end; at++)
                    sum = (sum ^ (unsigned char)*at) * 1099511628211ul;
    }
    return sum;
}

static void say(long call, const char *what, long answer, uint64_t sum) {
    printf("%ld %s: %ld %s %016lx\n", call, what, answer, answer < 0 ? strerrorname_np(errno) : "-", sum);
}

static void copies(long call, pid_t child, pid_t ended) {
    static struct iovec own[MOST], other[MOST];
    int writes = (int)draw(2), is_bad = draw(2) == 0, to_child = draw(3) == 0;
    pid_t whom = to_child ? child : draw(3) ? getpid() : other_thread;
    if (draw(25) == 0)
        whom = (pid_t[]){ended, 0, -1, INT_MIN}[draw(4)];
    long own_count = buffers(own, zone, bytes, is_bad && draw(2));
    long count = buffers(other, to_child ? shared : zone, to_child ? SHARED : bytes, is_bad && draw(2));
    const struct iovec *named = own, *others = other;
    if (is_bad && draw(12) == 0)
        named = (void *)(zone + bytes);
    if (is_bad && draw(12) == 0)
        others = draw(2) ? (void *)(zone + bytes) : (void *)8;
    unsigned long flags = is_bad && draw(20) == 0 ? (unsigned long)draw(2) - 1 : 0;
    errno = 0;
    long answer = (writes ? process_vm_writev : process_vm_readv)(whom, named, own_count, others, count, flags);
    /* A kernel without this call, or a filter, would make every answer the same. */
    CHECK(answer >= 0 || (errno != ENOSYS && errno != EPERM));
    int error = errno;
    uint64_t sum = writes ? hash(other, count) : hash(own, own_count);
    errno = error;
    say(call, writes ? "write" : "read", answer, sum);
}

/* A child of vfork copies within its parent's memory, of which both their numbers are. */
static void borrows(void) {
    static volatile long answers[2];
    static struct iovec here, there;
    pid_t parent = getpid();
    here = (struct iovec){zone, 3 << 20}, there = (struct iovec){zone + (4 << 20), 3 << 20};
    fill(zone + (4 << 20), 3 << 20, 77);
    pid_t child = vfork();
    if (child == 0) {
        answers[0] = syscall(SYS_process_vm_readv, parent, &here, 1, &there, 1, 0);
        answers[1] = syscall(SYS_process_vm_writev, syscall(SYS_getpid), &there, 1, &here, 1, 0);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    printf("borrowed: %ld %ld %zu\n", answers[0], answers[1], differing(zone, 3 << 20, 77));
}

/* What happens while a long call is made: another thread changes its arrays, or this thread's
 * handler does so and makes calls, or the other thread changes what is copied, and uses so much
 * other memory that it is paged out. */
enum change { NONE, ARRAYS, HANDLER, DATA, CHANGES };
static const char *const changes[] = {"over its arrays", "arrays by a thread", "arrays by a handler", "data"};

#define LONG (6ul << 20)
#define PART (1ul << 20)

static struct iovec *arrays[2];
static volatile enum change change;
static volatile int is_over;
static volatile long by_handler;
static uint64_t *target, *source, series;
static char *extra;
static pthread_t main_thread;

static void forget_arrays(void) {
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < 3; i++)
            arrays[which][i] = (struct iovec){(void *)8, PAGE};
}

/* Of this call, nothing is changed. */
static void on_signal(int unused) {
    struct iovec from = {zone + bytes - PART, PART}, to = {zone + bytes / 2 - PART, PART};
    forget_arrays();
    by_handler = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    by_handler += process_vm_writev(getpid(), &from, 1, &to, 1, 0);
    (void)unused;
}

static void *changes_it(void *unused) {
    volatile uint64_t *first = target;
    while (*first != series)
        ;
    if (change == ARRAYS)
        forget_arrays();
    if (change == HANDLER)
        CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
    while (change == DATA && !is_over) {
        for (size_t i = 1; i < LONG / 8; i += 61)
            ((volatile uint64_t *)source)[i] ^= 1ul << 63;
        for (size_t at = 0; at < bytes; at += PAGE)
            ((volatile char *)extra)[at]++;
    }
    return unused;
}

/* A long call, whose arrays lie in its own target, or aside. */
static void changes_between(enum change what, int writes) {
    static struct iovec aside[2][3];
    pthread_t thread;
    target = (uint64_t *)zone, source = (uint64_t *)(zone + bytes - PART - LONG);
    series = word(state, what * 2 + (uint64_t)writes) | 1, change = what, is_over = 0, by_handler = 0;
    for (size_t i = 0; i < LONG / 8; i++)
        source[i] = (series + i) & ~(1ul << 63), target[i] = 0;
    series = source[0];
    arrays[0] = what == NONE ? (void *)(zone + PART) : aside[0];
    arrays[1] = what == NONE ? (void *)(zone + 2 * PART + PAGE - 8) : aside[1];
    for (int i = 0; i < 3; i++) {
        arrays[writes][i] = (struct iovec){(char *)target + i * LONG / 3, LONG / 3};
        arrays[!writes][i] = (struct iovec){(char *)source + i * LONG / 2, i < 2 ? LONG / 2 : 0};
    }
    if (what != NONE)
        CHECK(pthread_create(&thread, NULL, changes_it, NULL) == 0);
    long answer = (writes ? process_vm_writev : process_vm_readv)(getpid(), arrays[0], 3, arrays[1], 3, 0);
    is_over = 1;
    if (what != NONE)
        CHECK(pthread_join(thread, NULL) == 0);
    size_t wrong = 0;
    for (size_t i = 0; i < LONG / 8; i++)
        wrong += (target[i] & ~(1ul << 63)) != ((series + i) & ~(1ul << 63)) || (what != DATA && target[i] != source[i]);
    printf("%s, %s: %ld, %zu words are wrong, handler: %ld\n", writes ? "write" : "read", changes[what], answer, wrong, by_handler);
}

static void *waits(void *unused) {
    char byte;
    other_thread = (pid_t)syscall(SYS_gettid);
    CHECK(write(begins[1], "b", 1) == 1);
    while (read(begins[0], &byte, 0) == 0)
        pause();
    return unused;
}

/* A child makes calls with its parent. */
static void from_child(long calls, uint64_t seed, pid_t ended) {
    int status, begin[2];
    char byte;
    CHECK(fflush(stdout) == 0 && pipe(begin) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(read(begin[0], &byte, 1) == 1);
        other_thread = getpid();
        for (long call = 0; call < calls; call++) {
            state = word(seed, (uint64_t)~call), drawn = 0;
            copies(call, getppid(), ended);
        }
        CHECK(fflush(stdout) == 0);
        _exit(0);
    }
    /* Yama lets only parents read their children, unless they say so. */
    prctl(PR_SET_PTRACER, child, 0, 0, 0);
    CHECK(write(begin[1], "b", 1) == 1 && close(begin[0]) == 0 && close(begin[1]) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    bytes = (size_t)atoi(argv[1]) << 20;
    uint64_t seed = strtoull(argv[3], NULL, 0);
    zone = mapped(bytes, MAP_PRIVATE, seed);
    /* Of a child, only memory that is not paged can be read at any time: docs/rights.md. */
    shared = mapped(SHARED, MAP_SHARED, seed + 1);
    CHECK(pipe(begins) == 0);
    pid_t ended = fork();
    CHECK(ended >= 0);
    if (ended == 0)
        _exit(0);
    CHECK(waitpid(ended, NULL, 0) == ended);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    pthread_t thread;
    char byte;
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0 && read(begins[0], &byte, 1) == 1);
    long calls = atol(argv[2]);
    for (long call = 0; call < calls; call++) {
        state = word(seed, (uint64_t)call), drawn = 0;
        copies(call, child, ended);
    }
    int status;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    from_child(calls / 3, seed, ended);
    borrows();
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(munmap(zone, bytes) == 0);
    zone = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    extra = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(zone != MAP_FAILED && extra != MAP_FAILED);
    main_thread = pthread_self();
    for (int i = 0; i < CHANGES * 4; i++)
        changes_between((enum change)(i % CHANGES), i / CHANGES % 2);
    return 0;
}

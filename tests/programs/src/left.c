/* Signals while calls on paged memory wait: handlers make calls of their own, on memory that is
 * out, and the calls end, start again or are left by long jumps, 100,000 times. What such calls
 * have pinned must not stay behind: in the end, data larger than the budget are read and written by
 * calls that name a large part of it.
 *
 * usage: left MIB
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define JUMPS 100000

static char *data;
static size_t bytes;
static int ends[2], full[2];
static volatile long handled;
static sigjmp_buf away;
static uint64_t state = 88172645463325252ull;

/* Anywhere in the data: mostly out. */
static char *anywhere(size_t len) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return data + state % (bytes - len);
}

/* A call of a handler, while its thread waits in another one. */
static void calls(int signal) {
    (void)signal;
    int kept = errno;
    char *from = anywhere(5000), *to = anywhere(5000);
    memset(from, 'h', 5000);
    CHECK(write(full[1], from, 5000) == 5000 && read(full[0], to, 5000) == 5000);
    CHECK(to[0] == 'h' && to[4999] == 'h');
    CHECK(write(-1, from, 10) == -1 && errno == EBADF);
    handled++;
    errno = kept;
}

static void jumps(int signal) {
    if (handled % 16 == 0)
        calls(signal);
    else
        handled++;
    siglongjmp(away, 1);
}

static void handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

static void each_us(long us) {
    struct itimerval timer = {{0, us}, {0, us}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void *writes_later(void *none) {
    while (handled < 20)
        usleep(1000);
    CHECK(write(ends[1], "after some signals", 19) == 19);
    return none;
}

/* Without SA_RESTART a read ends, with the flag it goes on. */
static void ends_and_restarts(void) {
    handle(calls, 0);
    each_us(2000);
    for (int i = 0; i < 50; i++)
        CHECK(read(ends[0], anywhere(100), 100) == -1 && errno == EINTR);
    struct iovec pieces[2] = {{anywhere(100), 100}, {anywhere(100), 100}};
    CHECK(readv(ends[0], pieces, 2) == -1 && errno == EINTR);
    each_us(0);
    puts("a handler ends a call: ok");
    handle(calls, SA_RESTART);
    handled = 0;
    pthread_t writer;
    sigset_t alarm;
    CHECK(sigemptyset(&alarm) == 0 && sigaddset(&alarm, SIGALRM) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    CHECK(pthread_create(&writer, NULL, writes_later, NULL) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    each_us(2000);
    char *in = data + 5 * 4096 + 77;
    CHECK(read(ends[0], in, 100) == 19);
    each_us(0);
    CHECK(strcmp(in, "after some signals") == 0 && handled >= 20);
    CHECK(pthread_join(writer, NULL) == 0);
    puts("a handler restarts a call: ok");
}

/* A signal comes while the thread waits, or just before: both leave the read. */
static void leaves(void) {
    handle(jumps, 0);
    for (volatile int i = 0; i < JUMPS; i++) {
        if (sigsetjmp(away, 1))
            continue;
        struct itimerval soon = {{0, 0}, {0, 20}};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        char *in = data + i / 8 % (bytes / 4096 - 1) * 4096;
        struct iovec piece = {in, 100};
        long got = i % 2 ? read(ends[0], in, 100) : readv(ends[0], &piece, 1);
        fprintf(stderr, "a read without bytes has ended: %ld, %s\n", got, strerror(errno));
        _exit(9);
    }
    printf("%d calls were left: ok\n", JUMPS);
}

/* Reads and writes by which most of the budget must come and go. */
static void transfers(void) {
    int file = memfd_create("left", MFD_CLOEXEC);
    CHECK(file >= 0);
    for (size_t page = 0; page < bytes / 4096; page++)
        fill(data + page * 4096, 4096, page + 1);
    CHECK(write(file, data, bytes) == (ssize_t)bytes);
    memset(data, 0, bytes);
    CHECK(pread(file, data, bytes, 0) == (ssize_t)bytes);
    for (size_t page = 0; page < bytes / 4096; page++)
        CHECK(differing(data + page * 4096, 4096, page + 1) == 0);
    CHECK(close(file) == 0);
    puts("transfers: ok");
}

int main(int argc, char **argv) {
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED && pipe(ends) == 0 && pipe(full) == 0);
    memset(data, 1, bytes);
    ends_and_restarts();
    leaves();
    transfers();
    puts("left: ok");
    return 0;
}

/* Calls with bad arguments, drawn from a seed, each in a child of its own: what the kernel answers
 * natively, it must answer here. The output lists the answers.
 *
 * usage: bad_calls MIB [CALLS [SEED...]]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define PAGE 4096ul
#define COUNT(of) (sizeof(of) / sizeof *(of))

extern char **environ;

static char *region;
static size_t bytes;
static uint64_t state, drawn;
static int self, paper, plug;
static struct iovec pieces[3];
static const struct timespec none, wrong = {-1, 0};

static uint64_t draw(uint64_t below) { return (state = word(state, drawn++)) % below; }

/* An address: of the region, of its hole, of nothing, of the kernel. */
static unsigned long place(void) {
    unsigned long at = (unsigned long)region;
    const unsigned long all[] = {at, at, at + PAGE * 3, at + 1, at + bytes / 2, at + bytes / 2 - PAGE, at + bytes - PAGE,
                                 0, 8, 1ul << 47, 1ul << 62, -PAGE, -1ul};
    return all[draw(COUNT(all))];
}

/* A place that cannot be read, or null. (The hole can be: docs/limits.md.) */
static void *nowhere(void) {
    static const unsigned long all[] = {0, 8, 1ul << 47, 1ul << 62, -PAGE, -1ul};
    return (void *)all[draw(COUNT(all))];
}

static unsigned long length(void) {
    static const unsigned long all[] = {0, 1, PAGE, PAGE, 2 * PAGE, 3 * PAGE + 5, 1ul << 17, 1ul << 63, -PAGE, -1ul};
    return all[draw(COUNT(all))];
}

static long one_of(size_t count, const long *all) { return all[draw(count)]; }
#define ONE_OF(...) one_of(COUNT(((const long[]){__VA_ARGS__})), (const long[]){__VA_ARGS__})

/* Pieces that are not there, too many, of negative length, or right. */
static struct iovec *vector(void) { return draw(2) ? nowhere() : pieces; }

static const char *name = "no call";
/* 64-bit Arm has none of these. */
#ifndef SYS_open
#define SYS_open SYS_openat
#define SYS_readlink SYS_readlinkat
#define SYS_dup2 SYS_dup3
#define IN_DIRECTORY AT_FDCWD,
#define NO_FLAGS , 0
#else
#define IN_DIRECTORY
#define NO_FLAGS
#endif
#define CALL(number, ...) (name = #number, syscall(SYS_##number, ##__VA_ARGS__))

static long of_memory(void) {
    switch (draw(14)) {
    case 0: return CALL(mmap, place(), length(), ONE_OF(0, 1, 3, 3, 0x1000), ONE_OF(0x22, 0x32, 0x100022, 0x20, 2, 1, 0x21), -1, ONE_OF(0, 1, PAGE));
    case 1: return CALL(munmap, place(), length());
    case 2: return CALL(mprotect, place(), length(), ONE_OF(0, 1, 3, 0x1000, -1));
    case 3: return CALL(pkey_mprotect, place(), length(), ONE_OF(1, 3, -1), ONE_OF(-1, 99, -2));
    case 4: return CALL(madvise, place(), length(), ONE_OF(0, 1, 3, 4, 8, 20, 21, 77, -1));
    case 5: return CALL(mremap, place(), length(), length(), ONE_OF(0, 1, 2, 3, 4, 5, 8, -1), nowhere());
    case 6: return CALL(mlock, place(), length());
    case 7: return CALL(mlock2, place(), length(), ONE_OF(0, 1, 2, -1));
    case 8: return CALL(process_madvise, ONE_OF(self, self, -1, paper), vector(), ONE_OF(0, 1, 2, 3, 1025, -1), ONE_OF(20, 21, 3, 77), ONE_OF(0, 0, 0, 1));
    case 9: return CALL(process_vm_writev, getpid(), vector(), ONE_OF(0, 1, 2, 3, 1025, -1), vector(), ONE_OF(0, 1, 2), ONE_OF(0, 0, 1));
    case 10: return CALL(shmat, ONE_OF(-1, 99999999), place(), ONE_OF(0, 040000, 020000));
    case 11: return CALL(shmdt, place());
    case 12: name = "munmap()"; return munmap((void *)place(), length());
    default: name = "mprotect()"; return mprotect((void *)place(), length(), (int)ONE_OF(1, 3));
    }
}

static long of_signals(void) {
    static const uint64_t set = 0;
    struct {
        const void *set;
        size_t len;
    } pair = {draw(2) ? &set : nowhere(), (size_t)ONE_OF(8, 8, 0, 7, -1)};
    const void *masks = draw(3) ? nowhere() : &set, *time = draw(2) ? (void *)&none : draw(2) ? (void *)&wrong : nowhere();
    long len = ONE_OF(8, 8, 8, 0, 4, 16, -1);
    struct epoll_event event;
    switch (draw(8)) {
    case 0: return CALL(rt_sigprocmask, ONE_OF(0, 1, 2, 3, -1), nowhere(), nowhere(), len);
    case 1: return CALL(rt_sigaction, ONE_OF(9, 10, 31, 0, 65, -1), nowhere(), nowhere(), len);
    /* Both would wait for ever if their set were right. */
    case 2: return CALL(rt_sigsuspend, (char *)nowhere(), len);
    case 3: return time ? CALL(ppoll, draw(2) ? nowhere() : NULL, ONE_OF(0, 0, 1, -1), time, masks, len) : 0;
    case 4: return time ? CALL(pselect6, ONE_OF(0, 0, 1, -1), nowhere(), NULL, NULL, time, draw(3) ? (void *)&pair : nowhere()) : 0;
    case 5: return CALL(epoll_pwait, ONE_OF(plug, plug, -1, paper), draw(2) ? (void *)&event : nowhere(), ONE_OF(1, 0, -1), 0, masks, len);
    case 6: return time ? CALL(epoll_pwait2, ONE_OF(plug, -1), &event, ONE_OF(1, 0), time, masks, len) : 0;
    default: return CALL(seccomp, ONE_OF(0, 1, 9, -1), ONE_OF(1, 1ul << 31), nowhere());
    }
}

static long of_files(void) {
    const char *path = draw(2) ? nowhere() : draw(2) ? "" : "/dev/null";
    /* A hosted program gets files without O_DIRECT, whether they have it or not: docs/host.md. */
    const char *lost = draw(2) ? nowhere() : "";
    struct {
        uint64_t flags, mode, resolve, more[2];
    } how = {(uint64_t)ONE_OF(0, O_DIRECTORY, 1ul << 40), (uint64_t)ONE_OF(0, 0, 1), (uint64_t)ONE_OF(0, 0, 1ul << 50), {(uint64_t)ONE_OF(0, 0, 1), 0}};
    char room[64];
    switch (draw(13)) {
    case 0: return CALL(open, IN_DIRECTORY lost, ONE_OF(O_DIRECT, 0, O_DIRECT | O_DIRECTORY));
    case 1: return CALL(openat, ONE_OF(AT_FDCWD, -1, paper), draw(2) ? lost : path, ONE_OF(0, O_DIRECTORY));
    case 2: return CALL(openat2, ONE_OF(AT_FDCWD, AT_FDCWD, -1), path, draw(4) ? (void *)&how : nowhere(), ONE_OF(24, 24, 32, 40, 23, 0, 4097, -1));
    case 3: return CALL(readlink, IN_DIRECTORY draw(2) ? "/proc/self/exe" : path, draw(2) ? room : nowhere(), ONE_OF(64, 0, -1));
    case 4: return CALL(readlinkat, ONE_OF(AT_FDCWD, -1), draw(2) ? "/proc/self/exe" : path, draw(2) ? room : nowhere(), ONE_OF(64, 0, -1));
    case 5: return CALL(fcntl, ONE_OF(-1, 699, paper), F_SETFL, ONE_OF(O_APPEND, 0));
    case 6: return CALL(setsockopt, ONE_OF(-1, paper, plug), ONE_OF(SOL_SOCKET, 0), 60, nowhere(), ONE_OF(0, 4, -1));
    case 7: return CALL(close, ONE_OF(-1, 1 << 20, 1 << 30));
    case 8: return CALL(dup2, ONE_OF(-1, paper, paper), ONE_OF(-1, 1 << 30) NO_FLAGS);
    case 9: return CALL(dup3, ONE_OF(-1, paper, paper), ONE_OF(-1, 1 << 30, paper), ONE_OF(0, O_CLOEXEC, 1));
    case 10: return CALL(close_range, ONE_OF(5, 1 << 20), ONE_OF(3, 1), ONE_OF(0, 4, 64));
    case 11: return CALL(unshare, ONE_OF(1, 0x10, -1));
    default: return CALL(setns, ONE_OF(-1, paper, plug), ONE_OF(0, -1, 0x40000000));
    }
}

static long of_execs(void) {
    char *good[] = {"true", NULL}, *bad[] = {"true", nowhere(), NULL};
    char **arguments = draw(2) ? nowhere() : draw(2) ? good : bad, **variables = draw(2) ? nowhere() : draw(2) ? good : bad;
    const char *path = draw(2) ? nowhere() : draw(2) ? "" : "/nowhere/true";
    switch (draw(4)) {
    case 0: return CALL(execve, path, arguments, variables);
    case 1: return CALL(execveat, ONE_OF(AT_FDCWD, -1, paper), path, arguments, variables, ONE_OF(0, AT_EMPTY_PATH, -1));
    case 2: name = "execve()"; return execve(path, arguments, variables);
    default: name = "execveat()"; return execveat((int)ONE_OF(AT_FDCWD, -1), path, arguments, variables, 0);
    }
}

static long call(void) {
    static long (*const kinds[])(void) = {of_memory, of_signals, of_files, of_execs};
    return kinds[draw(COUNT(kinds))]();
}

/* Makes calls from a seed, and says what was answered. */
static void say(int calls, uint64_t seed) {
    for (int i = 0; i < calls; i++) {
        state = word(seed, (uint64_t)i), drawn = 0;
        int answer[2];
        CHECK(pipe2(answer, O_CLOEXEC) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            self = (int)syscall(SYS_pidfd_open, getpid(), 0);
            pieces[0] = (struct iovec){region, PAGE}, pieces[1] = (struct iovec){region + bytes / 2, PAGE};
            pieces[2] = (struct iovec){region, (size_t)-1};
            errno = 0;
            long done = call();
            int said = done < 0 ? errno : 0;
            CHECK(write(answer[1], &said, sizeof said) == sizeof said);
            CHECK(write(answer[1], name, strlen(name)) == (ssize_t)strlen(name));
            _exit(0);
        }
        CHECK(close(answer[1]) == 0);
        char text[64] = "";
        int status, said = -1;
        ssize_t got = read(answer[0], &said, sizeof said);
        CHECK(got < (ssize_t)sizeof said || read(answer[0], text, sizeof text - 1) > 0);
        CHECK(close(answer[0]) == 0 && waitpid(child, &status, 0) == child);
        printf("%lu, %d %s: %s, status %d\n", seed, i, text, said == 0 ? "done" : said < 0 ? "nothing" : strerrorname_np(said), status);
    }
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    bytes = (size_t)atoi(argv[1]) << 20;
    int calls = argc > 2 ? atoi(argv[2]) : 1000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* The region has a hole in its middle, and ends in one that is longer than most lengths, and
     * shorter than what a heap takes. */
    region = mmap(NULL, bytes + 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED && munmap(region + bytes, 64 * PAGE) == 0 && munmap(region + bytes / 2, PAGE) == 0);
    for (size_t at = 0; at < bytes; at += PAGE)
        if (at != bytes / 2)
            fill(region + at, PAGE, at);
    paper = open("/dev/null", O_RDWR);
    plug = epoll_create1(0);
    CHECK(paper >= 0 && plug >= 0);
    if (argc <= 3)
        say(calls, 1);
    for (int i = 3; i < argc; i++)
        say(calls, strtoull(argv[i], NULL, 0));
    return 0;
}

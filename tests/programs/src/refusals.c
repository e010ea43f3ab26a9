/* What the kernel refuses, or does in part: the same answers, and no other bytes, on paged
 * memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page.h"

#define MIB ((size_t)1 << 20)
#define KIB ((size_t)1 << 10)
#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            printf("line %d: %s (errno %d)\n", __LINE__, #holds, errno); \
            exit(1); \
        } \
    } while (0)
#define REFUSED(call, with) \
    do { \
        errno = 0; \
        CHECK((long)(call) == -1); \
        CHECK(errno == (with)); \
    } while (0)

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static size_t others(const char *at, size_t bytes, int value) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += at[i] != value;
    return count;
}

/* Sends what came before out of memory. */
static void squeeze(size_t bytes) {
    char *at = map(bytes);
    memset(at, 9, bytes);
    CHECK(others(at, bytes, 9) == 0);
    CHECK(munmap(at, bytes) == 0);
}

/* The child's status, whose memory is to be the parent's. */
static int in_child(const char *at, size_t bytes, int value) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(others(at, bytes, value) != 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

/* Mappings of all sizes that a hole's could be given to. */
static void map_anew(void) {
    for (size_t bytes = 16 * KIB; bytes <= MIB; bytes *= 2) {
        char *at[4];
        for (int i = 0; i < 4; i++) {
            at[i] = map(bytes);
            CHECK(others(at[i], bytes, 0) == 0);
            memset(at[i], 1, bytes);
            CHECK(in_child(at[i], bytes, 1) == 0);
        }
        for (int i = 0; i < 4; i++)
            CHECK(munmap(at[i], bytes) == 0);
    }
}

/* Calls over what was unmapped are refused; what lies before it is changed, and nothing of that
 * is found in a mapping made later. */
static void holes(void) {
    int ways[] = {PROT_NONE, PROT_READ};
    for (int way = 0; way < 2; way++) {
        char *at = map(MIB);
        memset(at, 3, MIB);
        CHECK(munmap(at + MIB / 2, MIB / 4) == 0);
        REFUSED(mprotect(at, MIB, ways[way]), ENOMEM);
        CHECK(mprotect(at, MIB / 2, PROT_READ | PROT_WRITE) == 0);
        REFUSED(mprotect(at + MIB / 2, MIB / 2, ways[way]), ENOMEM);
        CHECK(others(at, MIB / 2, 3) == 0 && others(at + MIB / 4 * 3, MIB / 4, 3) == 0);
        map_anew();
        CHECK(munmap(at, MIB) == 0);
        map_anew();
    }
    char *at = map(MIB);
    memset(at, 4, MIB);
    CHECK(munmap(at + MIB / 2, MIB / 4) == 0);
    REFUSED(madvise(at, MIB, MADV_WIPEONFORK), ENOMEM);
    CHECK(in_child(at, MIB / 2, 0) == 0 && in_child(at + MIB / 4 * 3, MIB / 4, 0) == 0);
    REFUSED(madvise(at, MIB, MADV_KEEPONFORK), ENOMEM);
    CHECK(in_child(at, MIB / 2, 4) == 0 && in_child(at + MIB / 4 * 3, MIB / 4, 4) == 0);
    REFUSED(madvise(at + 16 * KIB, MIB - 16 * KIB, MADV_DONTNEED), ENOMEM);
    CHECK(others(at, 16 * KIB, 4) == 0 && others(at + 16 * KIB, MIB / 2 - 16 * KIB, 0) == 0);
    CHECK(others(at + MIB / 4 * 3, MIB / 4, 0) == 0);
    REFUSED(mlock(at + MIB / 2 - PAGE, 2 * PAGE), ENOMEM);
    CHECK(munlock(at, MIB / 2) == 0);
    map_anew();
    /* A pool gives pieces back, then closes all of itself. */
    CHECK(munmap(at, MIB) == 0);
    map_anew();
    puts("holes: ok");
}

/* Arguments that no call takes. */
static void arguments(void) {
    char *at = map(MIB);
    memset(at, 5, MIB);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    REFUSED(mmap(at, MIB, PROT_READ | PROT_WRITE, flags, -1, 1), EINVAL);
    REFUSED(mmap(at, MIB, PROT_NONE, flags, -1, 1), EINVAL);
    REFUSED(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 100), EINVAL);
    REFUSED(mremap(at, MIB, 2 * MIB, 64, NULL), EINVAL);
    REFUSED(mremap(at, MIB, 2 * MIB, MREMAP_FIXED, at + 8 * MIB), EINVAL);
    REFUSED(mremap(at, MIB, MIB, MREMAP_DONTUNMAP, NULL), EINVAL);
    REFUSED(mremap(at, MIB, MIB / 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EINVAL);
    CHECK(munmap(at + MIB / 2, MIB / 4) == 0);
    REFUSED(mremap(at, MIB, 2 * MIB, MREMAP_MAYMOVE, NULL), EFAULT);
    /* Nothing is there, and the range ends beyond all addresses. */
    char *nothing = (char *)(64 * KIB);
    REFUSED(mremap(nothing, -PAGE, PAGE, MREMAP_MAYMOVE, NULL), EFAULT);
    REFUSED(mremap(nothing, -PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + MIB / 2), EFAULT);
    REFUSED(mremap(at + MIB / 2, PAGE, 2 * PAGE, MREMAP_MAYMOVE, NULL), EFAULT);
    CHECK(others(at, MIB / 2, 5) == 0 && others(at + MIB / 4 * 3, MIB / 4, 5) == 0);
    /* A range that is shortened may end in a hole. */
    CHECK(mremap(at, MIB / 4 * 3, MIB / 4, 0, NULL) == at);
    CHECK(others(at, MIB / 4, 5) == 0);

    char *closed = map(MIB);
    memset(closed, 6, MIB);
    CHECK(mprotect(closed, MIB / 2, PROT_NONE) == 0);
    CHECK(madvise(closed, MIB, MADV_POPULATE_WRITE) == -1 && madvise(closed, MIB / 2, MADV_POPULATE_READ) == -1);
    CHECK(madvise(closed, MIB, MADV_COLD) == 0);
    CHECK(mprotect(closed, MIB / 2, PROT_READ) == 0);
    CHECK(madvise(closed, MIB, MADV_POPULATE_READ) == 0 && madvise(closed, MIB, MADV_POPULATE_WRITE) == -1);
    CHECK(others(closed, MIB, 6) == 0 && munmap(closed, MIB) == 0);

    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "abcd", 4) == 4);
    struct iovec *nowhere = (struct iovec *)strtoul("8", NULL, 10), pieces[2] = {{at, 2}, {nowhere, 2}};
    REFUSED(readv(ends[0], nowhere, 1), EFAULT);
    REFUSED(writev(ends[1], nowhere, 1), EFAULT);
    REFUSED(vmsplice(ends[1], nowhere, 1, 0), EFAULT);
    ssize_t spliced = vmsplice(ends[1], pieces, 2, 0);
    CHECK(spliced == 2 || (spliced == -1 && errno == EFAULT));
    close(ends[0]);
    close(ends[1]);
    puts("arguments: ok");
}

/* Where the process may have no more mappings, a range that cannot be closed keeps its bytes. */
static void no_room(size_t bytes) {
    char *at = map(MIB);
    memset(at, 7, MIB);
    squeeze(bytes);
    size_t most = 1 << 20, step = 2 * PAGE, made = 0;
    char *many = mmap(NULL, most * step, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(many != MAP_FAILED);
    while (made < most && mprotect(many + made * step, PAGE, PROT_NONE) == 0)
        made++;
    int full = made < most;
    if (full) {
        void *closed = mmap(at + MIB / 4, MIB / 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (closed == MAP_FAILED)
            CHECK(others(at, MIB, 7) == 0);
    }
    CHECK(munmap(many, most * step) == 0);
    CHECK(others(at, MIB / 4, 7) == 0 && others(at + MIB / 2, MIB / 2, 7) == 0);
    printf("no room: %s\n", full ? "ok" : "no limit met");
}

/* A file's page that was mapped into a part of a block: once it is unmapped, the file can be
 * sealed. */
static void unmap_a_page(void) {
    char *at = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    int file = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
    for (size_t pages = 1; pages <= 4; pages++) {
        char *page = mmap(at + 64 * KIB * pages, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        CHECK(page == at + 64 * KIB * pages);
        memset(page, 65, pages * PAGE);
        CHECK(munmap(page, pages * PAGE) == 0);
    }
    CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    close(file);
    CHECK(munmap(at, MIB) == 0);
    map_anew();
    puts("unmap a page: ok");
}

/* A ring of events is mapped into a reservation: the kernel takes no advice for such mappings. */
static void forks_beside_a_device(char *kept, size_t bytes) {
    struct perf_event_attr asked = {
        .type = PERF_TYPE_SOFTWARE, .size = sizeof asked, .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1};
    int events = syscall(SYS_perf_event_open, &asked, 0, -1, -1, 0);
    if (events < 0) {
        puts("forks beside a device: SKIPPED, perf_event_open is refused");
        return;
    }
    char *at = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(mmap(at + 64 * KIB, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, events, 0) != MAP_FAILED);
    CHECK(in_child(kept, bytes, 2) == 0);
    CHECK(munmap(at + 64 * KIB, 2 * PAGE) == 0);
    CHECK(in_child(kept, bytes, 2) == 0);
    CHECK(munmap(at, MIB) == 0);
    close(events);
    puts("forks beside a device: ok");
}

static char *kept;
static size_t kept_bytes;

static void *separate(void *unused) {
    /* With other threads it is refused within Terapage, for want of memory. */
    int done = unshare(CLONE_FILES);
    CHECK(done == 0 || errno == ENOMEM);
    CHECK(in_child(kept, kept_bytes, 2) == 0);
    return unused;
}

enum { ASKED = 4000 };
static volatile int is_over;

static void *forks(void *unused) {
    while (!is_over)
        CHECK(in_child(kept, PAGE, 2) == 0);
    return unused;
}

/* Descriptors of one's own: children that are made then find their memory, while the parent goes
 * on. */
static void own_descriptors(void) {
    for (int way = 0; way < 2; way++) {
        CHECK(way == 0 ? unshare(CLONE_FILES) == 0 : close_range(1000, 1001, CLOSE_RANGE_UNSHARE) == 0);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            usleep(100000);
            _exit(others(kept, kept_bytes, 2) != 0);
        }
        memset(kept, 3, kept_bytes);
        squeeze(kept_bytes);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(others(kept, kept_bytes, 3) == 0);
        memset(kept, 2, kept_bytes);
        squeeze(kept_bytes);
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, separate, NULL) == 0 && pthread_join(thread, NULL) == 0);
    /* Nor is it done while the other forks. */
    CHECK(pthread_create(&thread, NULL, forks, NULL) == 0);
    int refused = 0;
    for (int times = 0; times < ASKED; times++) {
        int done = unshare(CLONE_FILES);
        CHECK(done == 0 || errno == ENOMEM);
        refused += done != 0;
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(refused == 0 || refused == ASKED);
    puts("own descriptors: ok");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    holes();
    kept_bytes = bytes;
    kept = map(bytes);
    memset(kept, 2, bytes);
    squeeze(bytes);
    holes();
    arguments();
    unmap_a_page();
    forks_beside_a_device(kept, bytes);
    no_room(bytes);
    own_descriptors();
    CHECK(others(kept, bytes, 2) == 0);
    return 0;
}

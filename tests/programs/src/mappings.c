/* The mmap family on paged memory: parts unmapped, moved, protected, dropped, and handed to the
 * kernel. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "page.h"

#define MIB ((size_t)1 << 20)

static char *map(size_t bytes, int flags) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void fresh_is_zero(size_t bytes) {
    char *at = map(bytes, 0);
    CHECK(not_zero(at, bytes) == 0);
    fill(at, bytes, 1);
    CHECK(differing(at, bytes, 1) == 0);
    CHECK(munmap(at, bytes) == 0);
    puts("fresh memory is zero: ok");
}

/* Unmaps pieces of odd sizes at odd places; the rest stays. */
static void unmap_in_part(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 2);
    uint64_t *want = malloc(PAGE);
    CHECK(want != NULL);
    memcpy(want, at + bytes - PAGE, PAGE);
    CHECK(munmap(at, 3 * PAGE) == 0);
    CHECK(munmap(at + bytes / 4, bytes / 4 + 5 * PAGE) == 0);
    CHECK(munmap(at + bytes - 2 * PAGE, PAGE) == 0);
    CHECK(memcmp(at + bytes - PAGE, want, PAGE) == 0);
    const uint64_t *words = (const uint64_t *)at;
    for (size_t i = 3 * PAGE / 8; i < bytes / 4 / 8; i++)
        CHECK(words[i] == word(2, i));
    for (size_t i = (bytes / 2 + 5 * PAGE) / 8; i < (bytes - 2 * PAGE) / 8; i++)
        CHECK(words[i] == word(2, i));
    CHECK(munmap(at, bytes) == 0);
    free(want);
    puts("munmap in part: ok");
}

static void remap(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 3);
    char *wider = mremap(at, bytes, bytes + bytes / 2, MREMAP_MAYMOVE);
    CHECK(wider != MAP_FAILED);
    CHECK(differing(wider, bytes, 3) == 0);
    CHECK(not_zero(wider + bytes, bytes / 2) == 0);
    fill(wider + bytes, bytes / 2, 4);
    CHECK(differing(wider, bytes, 3) == 0);
    char *narrow = mremap(wider, bytes + bytes / 2, bytes / 2, 0);
    CHECK(narrow == wider);
    CHECK(differing(narrow, bytes / 2, 3) == 0);
    char *place = map(bytes, 0);
    fill(place, bytes, 5);
    char *moved = mremap(narrow, bytes / 2, bytes / 2, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    CHECK(moved == place);
    CHECK(differing(moved, bytes / 2, 3) == 0);
    CHECK(mremap(place, bytes / 2, bytes / 2, MREMAP_MAYMOVE | MREMAP_FIXED, place + bytes / 4) == MAP_FAILED);
    CHECK(errno == EINVAL && differing(moved, bytes / 2, 3) == 0);
    const uint64_t *words = (const uint64_t *)place;
    for (size_t i = bytes / 2 / 8; i < bytes / 8; i++)
        CHECK(words[i] == word(5, i));
    CHECK(munmap(place, bytes) == 0);
    puts("mremap grows, shrinks, moves: ok");
}

/* Grows one mapping step by step, as realloc of a large vector does. */
static void remap_often(size_t bytes) {
    size_t now = MIB;
    char *at = map(now, 0);
    fill(at, now, 6);
    while (now < bytes) {
        at = mremap(at, now, now + MIB, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED);
        uint64_t *words = (uint64_t *)at;
        for (size_t i = now / 8; i < (now + MIB) / 8; i++)
            words[i] = word(6, i);
        now += MIB;
    }
    CHECK(differing(at, now, 6) == 0);
    CHECK(munmap(at, now) == 0);
    puts("mremap step by step: ok");
}

static void protect(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 7);
    CHECK(mprotect(at, bytes / 2, PROT_READ) == 0);
    CHECK(differing(at, bytes, 7) == 0);
    CHECK(mprotect(at, bytes / 4, PROT_NONE) == 0);
    int fd[2];
    CHECK(pipe(fd) == 0);
    CHECK(write(fd[1], at, 8) == -1 && errno == EFAULT);
    CHECK(write(fd[1], "12345678", 8) == 8);
    CHECK(read(fd[0], at + bytes / 4, 8) == -1 && errno == EFAULT);
    CHECK(close(fd[0]) == 0 && close(fd[1]) == 0);
    CHECK(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
    CHECK(differing(at, bytes, 7) == 0);
    fill(at, bytes, 8);
    CHECK(differing(at, bytes, 8) == 0);
    CHECK(munmap(at, bytes) == 0);
    /* Reserved first, made usable piece by piece, as runtimes do. */
    at = mmap(NULL, 4 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(mprotect(at + bytes, bytes / 8, PROT_READ | PROT_WRITE) == 0);
    CHECK(not_zero(at + bytes, bytes / 8) == 0);
    fill(at + bytes, bytes / 8, 9);
    CHECK(mprotect(at + bytes + bytes / 8, bytes / 8, PROT_READ | PROT_WRITE) == 0);
    CHECK(not_zero(at + bytes + bytes / 8, bytes / 8) == 0);
    CHECK(differing(at + bytes, bytes / 8, 9) == 0);
    CHECK(munmap(at, 4 * bytes) == 0);
    puts("mprotect: ok");
}

/* Dropped pages read as zeros, those around them stay; pieces are smaller than a block and cross
 * blocks. */
static void drop(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 10);
    size_t from = bytes / 4 + PAGE, length = bytes / 4 + 3 * PAGE;
    CHECK(madvise(at + from, length, MADV_DONTNEED) == 0);
    CHECK(madvise(at + 7 * PAGE, PAGE, MADV_DONTNEED) == 0);
    const uint64_t *words = (const uint64_t *)at;
    for (size_t i = 0; i < bytes / 8; i++) {
        size_t byte = i * 8;
        int dropped = (byte >= from && byte < from + length) || (byte >= 7 * PAGE && byte < 8 * PAGE);
        CHECK(words[i] == (dropped ? 0 : word(10, i)));
    }
    fill(at, bytes, 11);
    CHECK(differing(at, bytes, 11) == 0);
    CHECK(madvise(at, bytes, MADV_SEQUENTIAL) == 0);
    CHECK(madvise(at, bytes / 2, MADV_WILLNEED) == 0);
    CHECK(madvise(at, bytes, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    CHECK(madvise(at, bytes, MADV_RANDOM) == 0);
    CHECK(differing(at, bytes, 11) == 0);
    CHECK(madvise(at, bytes, MADV_DONTNEED) == 0);
    CHECK(not_zero(at, bytes) == 0);
    CHECK(munmap(at, bytes) == 0);
    puts("madvise: ok");
}

static void map_over(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 12);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(at + bytes / 2, bytes / 8 + PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at + bytes / 2);
    CHECK(not_zero(at + bytes / 2, bytes / 8 + PAGE) == 0);
    CHECK(differing(at, bytes / 2, 12) == 0);
    int fd = open("mapped.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, at, PAGE) == (ssize_t)PAGE);
    CHECK(mmap(at + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at + PAGE);
    CHECK(memcmp(at, at + PAGE, PAGE) == 0);
    CHECK(close(fd) == 0 && unlink("mapped.bin") == 0);
    CHECK(mmap(at, PAGE, PROT_READ, flags | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    CHECK(munmap(at, bytes) == 0);
    puts("MAP_FIXED: ok");
}

static void populate(size_t bytes) {
    char *at = map(bytes, MAP_POPULATE);
    CHECK(not_zero(at, bytes) == 0);
    fill(at, bytes, 13);
    CHECK(differing(at, bytes, 13) == 0);
    CHECK(munmap(at, bytes) == 0);
    puts("MAP_POPULATE: ok");
}

static void lock(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 14);
    if (mlock(at, MIB / 2) == 0) {
        CHECK(differing(at, bytes, 14) == 0);
        CHECK(munlock(at, MIB / 2) == 0);
    } else {
        CHECK(errno == ENOMEM || errno == EPERM || errno == EAGAIN);
    }
    CHECK(differing(at, bytes, 14) == 0);
    CHECK(munmap(at, bytes) == 0);
    puts("mlock: ok");
}

static void whole(ssize_t (*step)(int, void *, size_t), int fd, char *at, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = step(fd, at + done, bytes - done);
        CHECK(n > 0);
        done += n;
    }
}

static ssize_t put(int fd, void *at, size_t bytes) { return write(fd, at, bytes); }

/* The kernel reads and writes paged buffers: plainly, past the page cache, vectored. */
static void files(size_t bytes) {
    char *at = map(bytes, 0), *back = map(bytes, 0);
    fill(at, bytes, 15);
    int fd = open("data.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    whole(put, fd, at, bytes);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    whole(read, fd, back, bytes);
    CHECK(differing(back, bytes, 15) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(madvise(back, bytes, MADV_DONTNEED) == 0);
    struct iovec pieces[2] = {{back + bytes / 2, bytes / 2}, {back, bytes / 2}};
    CHECK(readv(fd, pieces, 2) == (ssize_t)bytes);
    CHECK(memcmp(back + bytes / 2, at, bytes / 2) == 0 && memcmp(back, at + bytes / 2, bytes / 2) == 0);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    fd = open("data.bin", O_RDWR | O_DIRECT);
    if (fd >= 0) {
        whole(read, fd, back, bytes);
        CHECK(differing(back, bytes, 15) == 0);
        fill(back, bytes, 16);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        whole(put, fd, back, bytes);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        whole(read, fd, at, bytes);
        CHECK(differing(at, bytes, 16) == 0);
        CHECK(close(fd) == 0);
    } else {
        CHECK(errno == EINVAL);
    }
    CHECK(unlink("data.bin") == 0);
    CHECK(munmap(at, bytes) == 0 && munmap(back, bytes) == 0);
    puts("read, readv, write, O_DIRECT: ok");
}

static void pipes(size_t bytes) {
    char *at = map(bytes, 0), *back = map(bytes, 0);
    int fd[2];
    CHECK(pipe(fd) == 0);
    fill(at, bytes, 17);
    size_t piece = 32 << 10;
    for (size_t done = 0; done < bytes; done += piece) {
        if (done / piece % 2) {
            struct iovec one = {at + done, piece};
            CHECK(vmsplice(fd[1], &one, 1, 0) == (ssize_t)piece);
        } else {
            CHECK(write(fd[1], at + done, piece) == (ssize_t)piece);
        }
        whole(read, fd[0], back + done, piece);
    }
    CHECK(differing(back, bytes, 17) == 0);
    CHECK(close(fd[0]) == 0 && close(fd[1]) == 0);
    CHECK(munmap(at, bytes) == 0 && munmap(back, bytes) == 0);
    puts("pipe, vmsplice: ok");
}

/* What is not plain private memory moves as it is. */
static void remap_others(size_t bytes) {
    int fd = memfd_create("shared", 0);
    CHECK(fd >= 0 && ftruncate(fd, 2 * bytes) == 0);
    char *room = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED);
    char *shared = mmap(room, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    CHECK(shared == room);
    fill(shared, bytes, 18);
    shared = mremap(shared, bytes, 2 * bytes, MREMAP_MAYMOVE);
    CHECK(shared != MAP_FAILED && differing(shared, bytes, 18) == 0);
    fill(shared, 2 * bytes, 19);
    char *back = map(2 * bytes, 0);
    CHECK(pread(fd, back, 2 * bytes, 0) == (ssize_t)(2 * bytes) && differing(back, 2 * bytes, 19) == 0);
    CHECK(mremap(shared, 2 * bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
    fill(room, 2 * bytes, 20);
    CHECK(pread(fd, back, 2 * bytes, 0) == (ssize_t)(2 * bytes) && differing(back, 2 * bytes, 20) == 0);
    CHECK(munmap(room, 2 * bytes) == 0 && munmap(back, 2 * bytes) == 0 && close(fd) == 0);

    char *closed = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(closed != MAP_FAILED);
    closed = mremap(closed, bytes, 2 * bytes, MREMAP_MAYMOVE);
    CHECK(closed != MAP_FAILED && write(1, closed, 1) == -1 && errno == EFAULT);
    CHECK(munmap(closed, 2 * bytes) == 0);

    char *fixed = map(bytes, 0);
    fill(fixed, bytes, 21);
    CHECK(mprotect(fixed, bytes, PROT_READ) == 0);
    fixed = mremap(fixed, bytes, 2 * bytes, MREMAP_MAYMOVE);
    CHECK(fixed != MAP_FAILED && differing(fixed, bytes, 21) == 0);
    CHECK(read(0, fixed, 1) <= 0);
    CHECK(munmap(fixed, 2 * bytes) == 0);
    puts("mremap of shared, closed and read-only memory: ok");
}

/* Pages that were only read are zero in a child, too. */
static void read_and_fork(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED && mprotect(at, bytes, PROT_READ) == 0 && not_zero(at, bytes) == 0);
    CHECK(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(not_zero(at, bytes) != 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(not_zero(at, bytes) == 0 && munmap(at, bytes) == 0);
    puts("read, and then forked: ok");
}

static void advise_by(int self, size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 22);
    struct iovec pieces[2] = {{at, bytes / 4}, {at + bytes / 2, bytes / 4}};
    ssize_t done = process_madvise(self, pieces, 2, MADV_DONTNEED, 0);
    CHECK(done == (ssize_t)(bytes / 2) || done == -1);
    if (done > 0) {
        CHECK(not_zero(at, bytes / 4) == 0 && not_zero(at + bytes / 2, bytes / 4) == 0);
        fill(at, bytes, 22);
    }
    CHECK(differing(at, bytes, 22) == 0 && munmap(at, bytes) == 0);
}

static sem_t is_open, is_done;

static void *stands_for_itself(void *descriptor) {
    *(int *)descriptor = syscall(SYS_pidfd_open, syscall(SYS_gettid), O_EXCL);
    CHECK(sem_post(&is_open) == 0 && sem_wait(&is_done) == 0);
    return NULL;
}

/* What a process asks of its own memory, through a descriptor of itself. Kernels differ in what
 * they allow: what is not done must not seem to be. */
static void advise_oneself(size_t bytes) {
    int process = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(process >= 0);
    advise_by(process, bytes);
    /* PIDFD_SELF_THREAD, PIDFD_SELF_THREAD_GROUP as it was and as it is: EBADF where the kernel
     * does not know them. */
    advise_by(-10000, bytes);
    advise_by(-10001, bytes);
    advise_by(-20000, bytes);
    /* Of another thread, since Linux 6.9 (PIDFD_THREAD). */
    pthread_t thread;
    int of_thread = -1;
    CHECK(pthread_create(&thread, NULL, stands_for_itself, &of_thread) == 0);
    CHECK(sem_wait(&is_open) == 0);
    if (of_thread >= 0) {
        advise_by(of_thread, bytes);
        CHECK(close(of_thread) == 0);
    }
    CHECK(sem_post(&is_done) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(close(process) == 0);
    puts("process_madvise on oneself: ok");
}

/* Numbers that the program does not use may be another's. */
static void close_over(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 23);
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0);
    for (int number = 60; number < 1000; number++) {
        int made = number % 2 ? dup2(null, number) : dup3(null, number, O_CLOEXEC);
        CHECK(made == number || (made == -1 && errno == EBADF));
    }
    CHECK(dup2(null, null) == null && dup2(59, 59) == -1 && dup3(null, null, 0) == -1);
    fill(at, bytes, 24);
    CHECK(differing(at, bytes, 24) == 0 && munmap(at, bytes) == 0);
    for (int number = 60; number < 1000; number++)
        close(number);
    CHECK(close(null) == 0);
    puts("dup2 over all: ok");
}

/* What was never touched costs nothing where a mapping moves. */
static void remap_sparse(size_t bytes) {
    size_t whole = (size_t)8 << 30, step = whole / 64 + 3 * PAGE;
    char *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t from = 0; from + 2 * PAGE < whole; from += step)
        fill(at + from + PAGE, PAGE, 9);
    char *more = map(bytes, 0);
    fill(more, bytes, 2);
    CHECK(munmap(more, bytes) == 0);
    at = mremap(at, whole, whole + 3 * PAGE, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED);
    char *moved = mremap(at + PAGE, whole, whole + bytes, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != at + PAGE);
    for (size_t from = 0; from + 2 * PAGE < whole; from += step)
        CHECK(differing(moved + from, PAGE, 9) == 0 && not_zero(moved + from + PAGE, 4 * PAGE) == 0);
    CHECK(munmap(moved, whole + bytes) == 0);
    puts("remap of sparse memory: ok");
}

/* Whether Linux moves several mappings at once (6.17). */
static int moves_several(void) {
    struct utsname system;
    int major = 0, minor = 0;
    CHECK(uname(&system) == 0 && sscanf(system.release, "%d.%d", &major, &minor) == 2);
    return major > 6 || (major == 6 && minor >= 17);
}

/* What is to be empty in a child, and came from two places, is so wherever it moves as one. */
static void remap_wiped(size_t bytes) {
    char *one = map(bytes, 0), *other = map(bytes, 0), *whole = map(4 * bytes, 0), *place = map(4 * bytes, 0);
    fill(one, bytes, 31);
    fill(other, bytes, 32);
    CHECK(madvise(one, bytes, MADV_WIPEONFORK) == 0 && madvise(other, bytes, MADV_WIPEONFORK) == 0);
    fill(whole, 4 * bytes, 33);
    CHECK(mremap(one, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, whole + 2 * bytes) == whole + 2 * bytes);
    CHECK(mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, whole + bytes) == whole + bytes);
    for (int part = 0; part < 2; part++) {
        /* The two, and then all. */
        char *from = part ? place : whole + bytes, *to = part ? whole : place + bytes;
        size_t len = part ? 4 * bytes : 2 * bytes;
        if (part)
            fill(place, bytes, 34), fill(place + 3 * bytes, bytes, 35);
        if (mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
            CHECK(errno == EFAULT && !moves_several());
            break;
        }
        char *at = to + (part ? bytes : 0);
        CHECK(differing(at, bytes, 32) == 0 && differing(at + bytes, bytes, 31) == 0);
        CHECK(!part || (differing(to, bytes, 34) == 0 && differing(to + 3 * bytes, bytes, 35) == 0));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(not_zero(at, 2 * bytes) == 0);
            CHECK(!part || (differing(to, bytes, 34) == 0 && differing(to + 3 * bytes, bytes, 35) == 0));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    puts("mremap of what is to be empty in a child: ok");
}

#define REFUSED(call, number) CHECK((errno = 0, (call)) && errno == (number))

/* Lengths that no range has: refused, also where rounding them up to pages makes nothing of
 * them. */
static void too_long(size_t bytes) {
    char *at = map(bytes, 0);
    fill(at, bytes, 24);
    volatile size_t lengths[] = {SIZE_MAX, SIZE_MAX - 5000, (size_t)1 << 62};
    for (int i = 0; i < 3; i++) {
        size_t len = lengths[i];
        REFUSED(munmap(at, len) == -1, EINVAL);
        REFUSED(mremap(at, bytes, len, MREMAP_MAYMOVE) == MAP_FAILED, EINVAL);
        REFUSED(mremap(at, len, bytes, MREMAP_MAYMOVE) == MAP_FAILED, EINVAL);
        REFUSED(mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, ENOMEM);
        REFUSED(mmap(at, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED, ENOMEM);
        /* Of the third the kernel does what lies before the first hole. */
        REFUSED(i == 2 || mprotect(at, len, PROT_NONE) == -1, i == 2 ? 0 : ENOMEM);
        REFUSED(i == 2 || madvise(at, len, MADV_DONTNEED) == -1, i == 2 ? 0 : EINVAL);
    }
    CHECK(differing(at, bytes, 24) == 0);
    CHECK(munmap(at, bytes) == 0);
    puts("too long: ok");
}

static char arrays[4 * MIB];

/* Parts of static arrays are unmapped, moved, and to be empty in a child. In a child each, since
 * what goes is not paged from then on. */
static void static_arrays(size_t bytes) {
    char *at = arrays + MIB - (uintptr_t)arrays % PAGE;
    for (int way = 0; way < 3; way++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            fill(at, MIB, 5);
            fill(at + MIB, MIB, 6);
            fill(at + 2 * MIB, MIB - PAGE, 7);
            if (way == 0) {
                CHECK(munmap(at + MIB, MIB) == 0);
                CHECK(mmap(at + MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at + MIB);
                CHECK(not_zero(at + MIB, MIB) == 0);
            } else if (way == 1) {
                char *moved = mremap(at + MIB, MIB, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
                CHECK(moved != MAP_FAILED && differing(moved, MIB, 6) == 0 && not_zero(at + MIB, MIB) == 0);
            } else {
                CHECK(madvise(at + MIB, MIB, MADV_WIPEONFORK) == 0);
                pid_t inner = fork();
                CHECK(inner >= 0);
                if (inner == 0)
                    _exit(not_zero(at + MIB, MIB) != 0);
                int status;
                CHECK(waitpid(inner, &status, 0) == inner && status == 0);
                CHECK(differing(at + MIB, MIB, 6) == 0);
            }
            char *more = map(bytes, 0);
            fill(more, bytes, 8);
            CHECK(differing(at, MIB, 5) == 0 && differing(at + 2 * MIB, MIB - PAGE, 7) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    puts("static arrays: ok");
}

/* How often a segment is attached. */
static unsigned long attached(int id) {
    struct shmid_ds about;
    CHECK(shmctl(id, IPC_STAT, &about) == 0);
    return about.shm_nattch;
}

/* System V shared memory over paged memory, over static arrays, and where paged memory was. */
static void segments(size_t bytes) {
    int id = shmget(IPC_PRIVATE, MIB - PAGE, IPC_CREAT | 0600);
    CHECK(id >= 0);
    char *other = shmat(id, NULL, 0);
    /* From now on it goes with the last process that has it. */
    CHECK(other != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    char *at = map(3 * MIB, 0);
    fill(at, 3 * MIB, 30);
    char *middle = at + MIB + PAGE;
    CHECK(shmat(id, middle, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, middle + 1, SHM_REMAP) == (void *)-1 && errno == EINVAL);
    CHECK(shmdt(middle) == -1 && errno == EINVAL);
    CHECK(differing(at, 3 * MIB, 30) == 0);
    CHECK(shmat(id, middle + 1, SHM_REMAP | SHM_RND) == middle && attached(id) == 2);
    fill(middle, MIB - PAGE, 31);
    char *more = map(bytes, 0);
    fill(more, bytes, 32);
    CHECK(differing(at, MIB, 30) == 0 && not_zero(at + MIB, PAGE) > 0);
    CHECK(differing(middle, MIB - PAGE, 31) == 0 && differing(other, MIB - PAGE, 31) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(differing(middle, MIB - PAGE, 31) == 0 && differing(at, MIB, 30) == 0);
        fill(middle, MIB - PAGE, 33);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(differing(middle, MIB - PAGE, 33) == 0 && differing(other, MIB - PAGE, 33) == 0);
    /* What is left of it once a part has been mapped over. */
    CHECK(mmap(middle, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == middle);
    fill(middle, 5 * PAGE, 34);
    CHECK(shmdt(middle) == 0 && attached(id) == 1);
    fill(more, bytes, 35);
    CHECK(differing(middle, 5 * PAGE, 34) == 0 && differing(at, MIB, 30) == 0);
    CHECK(munmap(at, 3 * MIB) == 0);
    /* Its place is free now. */
    CHECK(shmat(id, middle, 0) == middle && differing(middle, MIB - PAGE, 33) == 0);
    CHECK(shmdt(middle) == 0 && attached(id) == 1);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        at = arrays + PAGE - (uintptr_t)arrays % PAGE;
        fill(at, 3 * MIB, 36);
        CHECK(shmat(id, at + MIB, SHM_REMAP) == at + MIB && differing(at + MIB, MIB - PAGE, 33) == 0);
        fill(more, bytes, 37);
        CHECK(differing(at, MIB, 36) == 0 && differing(at + MIB, MIB - PAGE, 33) == 0);
        CHECK(shmdt(at + MIB) == 0 && attached(id) == 2);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(differing(more, bytes, 35) == 0 && munmap(more, bytes) == 0);
    for (int round = 0; round < 8; round++) {
        at = map(MIB, 0);
        CHECK(not_zero(at, MIB) == 0);
        fill(at, MIB, 38);
        CHECK(munmap(at, MIB) == 0);
    }
    CHECK(shmdt(other) == 0);
    puts("segments: ok");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    fresh_is_zero(2 * bytes);
    unmap_in_part(bytes);
    remap(bytes);
    remap_often(bytes);
    drop(bytes);
    map_over(bytes);
    populate(bytes);
    files(bytes);
    pipes(bytes);
    protect(bytes / 4);
    lock(bytes);
    remap_others(bytes / 4);
    read_and_fork(bytes / 4);
    advise_oneself(bytes);
    close_over(2 * bytes);
    remap_sparse(bytes);
    remap_wiped(bytes / 64);
    too_long(bytes);
    static_arrays(2 * bytes);
    segments(2 * bytes);
    return 0;
}

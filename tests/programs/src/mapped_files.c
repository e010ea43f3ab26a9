// Maps a file to read it, and checks that the mapping behaves as the kernel's does.
//
//   mapped_files make FILE MIB            makes a file
//   mapped_files calls FILE SEED ROUNDS   calls on parts of the mapping, threads, forks
//   mapped_files change FILE SEED S       another process changes the file for S seconds
//   mapped_files watch FILE SEED S BYTES  others change the file of BYTES, for S seconds
//   mapped_files executes FILE SEED S     so does a second process, and what this one executes
//   mapped_files once FILE SEED           only reads it; `cached`: as it lies in the page cache
//   mapped_files named FILE SEED          maps where free memory was named to the kernel
//   mapped_files longer FILE SEED         maps more than the file has, as LMDB does
//   mapped_files passes FILE SEED PASSES  reads all of it again and again
//   mapped_files random FILE SEED WORDS   reads words here and there, as it has advised
//   mapped_files beside FILE SEED         reads in a signal handler, beside a second process
//   mapped_files again FILE SEED PASSES MIB   reads what has just left memory; MIB of its own
//
// The words of FILE follow from their places. A twin shows what must be there: the kernel's own
// mapping of the same file, at an address that the program insists on.
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
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / 8)

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

static size_t size_of(const char *path) {
    struct stat status;
    CHECK(stat(path, &status) == 0);
    return status.st_size;
}

static int drops = 1;

static void *map(const char *path, size_t len, int kind, off_t offset) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    // A file in the page cache would be left to the kernel.
    if (drops) CHECK(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    void *at = mmap(NULL, len, PROT_READ, kind, fd, offset);
    CHECK(at != MAP_FAILED);
    close(fd);
    return at;
}

// The kernel's mapping, whose bytes are right.
static void *twin(const char *path, size_t len, off_t offset) {
    static char *place = (char *)0x300000000000;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    void *at = mmap(place, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, offset);
    CHECK(at == place);
    place += (len + (1 << 30)) & ~(size_t)(PAGE - 1);
    close(fd);
    return at;
}

static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t expects;

static void on_signal(int signal) {
    if (!expects) _exit(99);
    siglongjmp(back, signal);
}

static void expect(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
}

// The signal that a write raises; 0 for none.
static int write_raises(volatile char *at) {
    expects = 1;
    int raised = sigsetjmp(back, 1);
    if (raised == 0) *at = 1;
    expects = 0;
    return raised;
}

// A word of memory, or the signal that a read raises.
static uint64_t look(volatile uint64_t *at) {
    expects = 1;
    int raised = sigsetjmp(back, 1);
    uint64_t word = raised;
    if (raised == 0) word = *at;
    expects = 0;
    return word;
}

struct pair {
    const char *paged, *twin;
    size_t len;
    uint64_t seed;
};

static void *compare(void *argument) {
    struct pair *pair = argument;
    for (int i = 0; i < 300; i++) {
        size_t at = mix(pair->seed++) % pair->len, size = 1 + mix(pair->seed++) % 100000;
        if (size > pair->len - at) size = pair->len - at;
        CHECK(memcmp(pair->paged + at, pair->twin + at, size) == 0);
    }
    if (pair->seed % 2) CHECK(memcmp(pair->paged, pair->twin, pair->len) == 0);
    return NULL;
}

static void compare_by_threads(const char *paged, const char *twin, size_t len) {
    pthread_t threads[3];
    struct pair pairs[3];
    for (int i = 0; i < 3; i++) {
        pairs[i] = (struct pair){paged, twin, len, mix(state++)};
        CHECK(pthread_create(&threads[i], NULL, compare, &pairs[i]) == 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

static int child_compares(const char *paged, const char *twin, size_t len) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(memcmp(paged, twin, len) != 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// One call on a part of the mapping, as natively.
static void call(char *paged, const char *twin, size_t len, int kind, int what) {
    size_t pages = len / PAGE, first = random_below(pages), count = 1 + random_below(pages - first);
    if (random_below(2)) count = 1 + random_below(count < 20 ? count : 20);
    char *at = paged + first * PAGE;
    size_t size = count * PAGE;
    int fds[2];
    char buffer[100];
    switch (what) {
    case 0: CHECK(madvise(at, size, MADV_DONTNEED) == 0); break;
    case 1: CHECK(madvise(at, size, MADV_WILLNEED) == 0); break;
    case 2: CHECK(madvise(at, size, MADV_RANDOM) == 0); break;
    case 3: CHECK(madvise(at, size, MADV_SEQUENTIAL) == 0); break;
    case 4: CHECK(posix_madvise(at, size, POSIX_MADV_WILLNEED) == 0); break;
    case 5: CHECK(msync(at, size, MS_SYNC) == 0); break;
    case 6: CHECK(mprotect(at, size, PROT_READ) == 0); break;
    case 7:
        CHECK(mprotect(at, size, PROT_NONE) == 0);
        CHECK(look((uint64_t *)at) == SIGSEGV);
        CHECK(mprotect(at, size, PROT_READ) == 0);
        break;
    case 8:
        if (size > 1 << 20) size = PAGE;
        CHECK(mlock(at, size) == 0);
        CHECK(munlock(at, size) == 0);
        break;
    case 9:
        CHECK(write_raises(at + random_below(size)) == SIGSEGV);
        break;
    case 10:
        CHECK(pipe(fds) == 0 && write(fds[1], "x", 1) == 1);
        CHECK(read(fds[0], at, 1) == -1 && errno == EFAULT);
        close(fds[0]), close(fds[1]);
        break;
    case 11:
        CHECK(pipe(fds) == 0);
        CHECK(write(fds[1], at, sizeof buffer) == sizeof buffer);
        CHECK(read(fds[0], buffer, sizeof buffer) == sizeof buffer);
        CHECK(memcmp(buffer, twin + first * PAGE, sizeof buffer) == 0);
        close(fds[0]), close(fds[1]);
        break;
    case 12:
        if (kind == MAP_SHARED) {
            // The file was opened only to be read.
            CHECK(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
        } else {
            CHECK(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
            CHECK(write_raises(at) == 0 && *at == 1);
            *at = twin[first * PAGE];
        }
        break;
    case 13: CHECK(child_compares(at, twin + first * PAGE, size)); break;
    case 14: {
        unsigned char there[16];
        CHECK(mincore(at, PAGE * (count < 16 ? count : 16), there) == 0);
        break;
    }
    }
}

static void calls(const char *path, int rounds) {
    size_t all = size_of(path);
    expect();
    for (int round = 0; round < rounds; round++) {
        size_t offset = random_below(8) * PAGE;
        size_t len = all - offset;
        if (random_below(2)) len -= random_below(len / 2);
        size_t end = (len + PAGE - 1) & ~(size_t)(PAGE - 1);
        int kind = random_below(2) ? MAP_SHARED : MAP_PRIVATE;
        char *paged = map(path, len, kind, offset), *right = twin(path, len, offset);
        if (random_below(2)) compare_by_threads(paged, right, end);
        for (int i = 0; i < 8; i++) {
            // Most of the calls leave the mapping paged.
            call(paged, right, len, kind, random_below(3) ? random_below(7) : random_below(15));
            if (random_below(3) == 0) compare_by_threads(paged, right, end);
        }
        if (random_below(2)) {
            // Parts of the mapping are unmapped, and the rest stays.
            size_t from = random_below(end / PAGE) * PAGE, to = from + PAGE * (1 + random_below((end - from) / PAGE));
            CHECK(munmap(paged + from, to - from) == 0);
            if (from > 0) compare_by_threads(paged, right, from);
            if (to < end) compare_by_threads(paged + to, right + to, end - to);
            char *other = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(other != MAP_FAILED && other[to - from - 1] == 0 && other[0] == 0);
            memset(other, 7, to - from);
            if (from > 0) compare_by_threads(paged, right, from);
            CHECK(other[random_below(to - from)] == 7);
            CHECK(munmap(other, to - from) == 0);
            if (from > 0) CHECK(munmap(paged, from) == 0);
            if (to < end) CHECK(munmap(paged + to, end - to) == 0);
        } else if (random_below(2)) {
            char *moved = mremap(paged, len, len / 2, MREMAP_MAYMOVE);
            CHECK(moved != MAP_FAILED && memcmp(moved, right, len / 2) == 0);
            CHECK(munmap(moved, len / 2) == 0);
        } else {
            CHECK(munmap(paged, len) == 0);
        }
        CHECK(munmap(right, len) == 0);
    }
}

static void once(const char *path, int is_dropped) {
    drops = is_dropped;
    size_t len = size_of(path);
    char *paged = map(path, len, MAP_SHARED, 0), *right = twin(path, len, 0);
    CHECK(memcmp(paged, right, len) == 0);
}

// The kernel gets the address of memory that is free, and that the file's mapping then has.
static void named(const char *path) {
    size_t len = size_of(path), list_len;
    void *list;
    char *region = mmap(NULL, 2 * len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED);
    char *named = region + len / 2 / PAGE * PAGE;
    memset(named, 7, PAGE);
    CHECK(munmap(region, 2 * len) == 0);
    CHECK(syscall(SYS_get_robust_list, 0, &list, &list_len) == 0);
    CHECK(syscall(SYS_set_robust_list, named, list_len) == 0);
    for (int i = 0; i < 3; i++) {
        char *paged = map(path, len, i % 2 ? MAP_PRIVATE : MAP_SHARED, 0), *right = twin(path, len, 0);
        CHECK(i > 0 || (paged <= named && named < paged + len));
        compare_by_threads(paged, right, len);
        CHECK(munmap(paged, len) == 0 && munmap(right, len) == 0);
    }
    CHECK(syscall(SYS_set_robust_list, list, list_len) == 0);
}

static void write_word(const char *path, int flags, uint64_t word, size_t at) {
    int fd = open(path, O_WRONLY | flags);
    CHECK(fd >= 0 && pwrite(fd, &word, sizeof word, at) == sizeof word);
    close(fd);
}

// Words of both mappings, or the same signals.
static void same_words(uint64_t *paged, uint64_t *right, size_t len) {
    for (int i = 0; i < 20000; i++) {
        size_t word = random_below(len / 8);
        CHECK(look(paged + word) == look(right + word));
    }
}

static void *same_words_again(void *argument) {
    struct pair *pair = argument;
    for (int i = 0; i < 20000; i++) {
        size_t word = mix(pair->seed++) % (pair->len / 8);
        CHECK(look((uint64_t *)pair->paged + word) == look((uint64_t *)pair->twin + word));
    }
    return NULL;
}

// The same by a second thread, and by children that are forked meanwhile.
static void same_words_by_others(uint64_t *paged, uint64_t *right, size_t len) {
    struct pair pair = {(char *)paged, (char *)right, len, mix(state++)};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, same_words_again, &pair) == 0);
    same_words(paged, right, len);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            same_words(paged, right, len);
            _exit(0);
        }
        same_words(paged, right, len);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

static void longer(const char *path) {
    expect();
    size_t all = size_of(path), pages = (all + PAGE - 1) / PAGE * PAGE, len = 2 * pages + 5 * PAGE;
    uint64_t *paged = map(path, len, MAP_SHARED, 0), *right = twin(path, len, 0);
    CHECK(look(paged + pages / 8 - 1) == 0 && look(paged + pages / 8) == SIGBUS && look(paged + len / 8 - 1) == SIGBUS);
    CHECK(madvise(paged, len, MADV_RANDOM) == 0 && posix_madvise(paged, len, POSIX_MADV_WILLNEED) == 0);
    CHECK(posix_madvise(paged, len, POSIX_MADV_DONTNEED) == 0 && posix_madvise(paged, len, 77) == EINVAL);
    CHECK(madvise(paged, len, 77) == -1 && errno == EINVAL);
    same_words(paged, right, len);
    // The file grows within the mapping.
    write_word(path, 0, mix(state++), pages + 7 * PAGE);
    CHECK(look(paged + pages / 8 + 7 * WORDS) == look(right + pages / 8 + 7 * WORDS));
    CHECK(look(paged + pages / 8 + 8 * WORDS) == SIGBUS);
    same_words(paged, right, len);
    CHECK(truncate(path, all) == 0);
    CHECK(munmap(paged, len) == 0 && munmap(right, len) == 0);
    // Nobody else can use the rest of the mapping meanwhile.
    paged = map(path, len, MAP_PRIVATE, 0), right = twin(path, len, 0);
    char *other = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(other != MAP_FAILED && (other >= (char *)paged + len || other + len <= (char *)paged));
    memset(other, 7, len);
    same_words(paged, right, len);
    same_words_by_others(paged, right, len);
    CHECK(munmap(other, len) == 0 && munmap(paged, len) == 0 && munmap(right, len) == 0);
    // The program's own lease is not the reason for an error.
    paged = map(path, all, MAP_SHARED, 0);
    uint64_t word = mix(state++);
    write_word(path, O_NONBLOCK, word, 8);
    CHECK(paged[1] == word);
    CHECK(munmap(paged, all) == 0);
}

static void passes(const char *path, int count) {
    size_t len = size_of(path);
    char *paged = map(path, len, MAP_SHARED, 0), *right = twin(path, len, 0);
    for (int pass = 0; pass < count; pass++) {
        CHECK(memcmp(paged, right, len) == 0);
        // The compiler must not take all passes for one.
        __asm__ volatile("" ::: "memory");
    }
}

static void random_words(const char *path, int count) {
    size_t len = size_of(path);
    uint64_t *paged = map(path, len, MAP_SHARED, 0), *right = twin(path, len, 0);
    CHECK(madvise(paged, len, MADV_RANDOM) == 0);
    for (int i = 0; i < count; i++) {
        size_t word = random_below(len / 8);
        CHECK(paged[word] == right[word]);
    }
}

static uint64_t sum_of(const uint64_t *words, size_t bytes) {
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes / 8; at += WORDS) sum = mix(sum) + words[at];
    return sum;
}

#define PARTS 8

// Half of the file is in memory at any time, as if memory were too small for it.
static void again(const char *path, int count, size_t own) {
    size_t part = size_of(path) / PARTS / PAGE * PAGE;
    char *at = map(path, size_of(path), MAP_SHARED, 0), *filled = malloc(own);
    CHECK(filled != NULL);
    memset(filled, 7, own);
    uint64_t sums[PARTS];
    for (int i = 0; i < count * PARTS; i++) {
        uint64_t sum = sum_of((uint64_t *)(at + i % PARTS * part), part);
        if (i < PARTS) sums[i] = sum;
        CHECK(sum == sums[i % PARTS]);
        CHECK(madvise(at + (i + PARTS / 2) % PARTS * part, part, MADV_PAGEOUT) == 0);
        usleep(100000);
    }
    for (size_t i = 0; i < own; i += PAGE) CHECK(filled[i] == 7);
    free(filled);
}

static struct pair handled;
static volatile long handled_words;

static void on_tick(int signal) {
    (void)signal;
    int before = errno;
    for (int i = 0; i < 5; i++) {
        size_t word = mix(handled.seed++) % (handled.len / 8);
        CHECK(((const uint64_t *)handled.paged)[word] == ((const uint64_t *)handled.twin)[word]);
        handled_words++;
    }
    errno = before;
}

static void beside(const char *program, const char *path, const char *seed) {
    size_t len = size_of(path) / 8 * 8;
    handled = (struct pair){map(path, len, MAP_SHARED, 0), twin(path, len, 0), len, state};
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval each = {{0, 2000}, {0, 2000}};
    pid_t other;
    char *arguments[] = {(char *)program, "once", (char *)path, (char *)seed, NULL};
    CHECK(posix_spawn(&other, program, NULL, NULL, arguments, environ) == 0);
    CHECK(setitimer(ITIMER_REAL, &each, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        compare_by_threads(handled.paged, handled.twin, len);
        // Calls of the library, interrupted by the handler.
        char *again = map(path, len, MAP_PRIVATE, 0);
        CHECK(memcmp(again, handled.twin, len / 4) == 0 && munmap(again, len) == 0);
    }
    int status;
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    each = (struct itimerval){0};
    CHECK(setitimer(ITIMER_REAL, &each, NULL) == 0 && handled_words > 0);
}

// Changes the file in every way, for `seconds`.
static void changes(const char *path, int seconds) {
    char other[4096], bytes[3 * PAGE];
    snprintf(other, sizeof other, "%s.new", path);
    size_t size = size_of(path);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (time_t until = time(NULL) + seconds; time(NULL) < until;) {
        for (size_t i = 0; i < sizeof bytes; i += 8) *(uint64_t *)(bytes + i) = mix(state++);
        int fd = -1;
        switch (random_below(8)) {
        case 0: // The file is replaced by a rename, and the old file stays as it is.
            if (random_below(4)) break;
            fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
            CHECK(fd >= 0);
            for (size_t at = 0; at < size; at += sizeof bytes) {
                *(uint64_t *)bytes = mix(state++);
                CHECK(pwrite(fd, bytes, sizeof bytes, at) == sizeof bytes);
            }
            CHECK(fsync(fd) == 0);
            CHECK(rename(other, path) == 0);
            break;
        case 1: {
            // The file is truncated and made long again, which leaves a hole.
            size_t to = random_below(size);
            CHECK(truncate(path, to) == 0);
            usleep(random_below(20000));
            CHECK(truncate(path, size) == 0);
            break;
        }
        case 2:
            fd = open(path, O_WRONLY | O_APPEND);
            CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes);
            CHECK(ftruncate(fd, size) == 0);
            break;
        default:
            fd = open(path, O_RDWR);
            CHECK(fd >= 0);
            for (int i = random_below(20); i >= 0; i--) {
                CHECK(pwrite(fd, bytes, sizeof bytes, random_below(size / 8) * 8) > 0);
            }
            CHECK(ftruncate(fd, size) == 0);
        }
        if (fd >= 0) close(fd);
        usleep(random_below(2) ? 300000 : random_below(30000));
    }
}

struct watched {
    const char *path;
    volatile uint64_t *paged, *right;
    size_t words;
    volatile int over;
};

// Who maps the file anew does not wait for ever for two threads that look at it in turns.
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
static pthread_rwlock_t mapped = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
#else
static pthread_rwlock_t mapped = PTHREAD_RWLOCK_INITIALIZER;
#endif

// If the twin has the same word before and after, the paged mapping must have the word, too. While
// a file is truncated, the kernel takes pages from one mapping after the other; in that case the
// word is read again.
static int is_right(struct watched *it, size_t word) {
    for (int tries = 0; tries < 200; tries++) {
        uint64_t before = look(it->right + word), here = look(it->paged + word);
        if (look(it->right + word) != before || here == before) return 1;
        if (here > SIGBUS && before > SIGBUS) return 0;
        usleep(1000);
    }
    return 0;
}

static void *watch(void *argument) {
    struct watched *it = argument;
    uint64_t seed = (uintptr_t)&seed, at = 0, seen = 0;
    while (!it->over) {
        pthread_rwlock_rdlock(&mapped);
        for (int i = 0; i < 1000; i++) {
            at = i % 2 ? at + 100 : mix(seed++);
            size_t word = at % it->words;
            CHECK(is_right(it, word));
            seen++;
        }
        pthread_rwlock_unlock(&mapped);
        usleep(1000);
    }
    CHECK(seen > 0);
    return NULL;
}

// Maps the file twice. Meanwhile another file may get its name.
static void map_both(struct watched *it, size_t len) {
    struct stat before, after;
    for (;;) {
        CHECK(stat(it->path, &before) == 0);
        it->paged = map(it->path, len, random_below(2) ? MAP_SHARED : MAP_PRIVATE, 0);
        it->right = twin(it->path, len, 0);
        CHECK(stat(it->path, &after) == 0);
        if (before.st_ino == after.st_ino) return;
        munmap((void *)it->paged, len), munmap((void *)it->right, len);
    }
}

// Looks at the file until the writer has ended, or, where others write, for some time. `len` is the
// file's length before anybody writes, who may truncate the file.
static void watch_until(const char *path, size_t len, pid_t writer, int seconds) {
    expect();
    struct watched it = {.path = path, .words = len / 8};
    map_both(&it, len);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, watch, &it) == 0);
    int status = 0;
    time_t until = time(NULL) + seconds;
    while (writer ? waitpid(writer, &status, WNOHANG) == 0 : time(NULL) < until) {
        usleep(random_below(100000));
        if (random_below(10) == 0) {
            // This process writes to the file, too; O_NONBLOCK is for other files.
            int fd = open(path, O_WRONLY);
            uint64_t word = mix(state++);
            CHECK(fd >= 0 && pwrite(fd, &word, 8, random_below(len / 16) * 8) == 8);
            close(fd);
        }
        pthread_rwlock_wrlock(&mapped);
        if (random_below(20) == 0) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            CHECK(waitpid(child, NULL, 0) == child);
        }
        // The kernel may have the mapping by now. A new mapping is paged again.
        munmap((void *)it.paged, len), munmap((void *)it.right, len);
        map_both(&it, len);
        pthread_rwlock_unlock(&mapped);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    it.over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static pid_t start(const char *program, const char *what, const char *path, const char *seed, const char *more,
                   const char *most) {
    pid_t started;
    char *arguments[] = {(char *)program, (char *)what, (char *)path, (char *)seed, (char *)more, (char *)most, NULL};
    CHECK(posix_spawn(&started, program, NULL, NULL, arguments, environ) == 0);
    return started;
}

static void change(const char *program, const char *path, const char *seed, const char *seconds) {
    size_t len = size_of(path);
    watch_until(path, len, start(program, "changes", path, seed, seconds, NULL), 0);
}

static void executes(const char *program, const char *path, const char *seed, const char *seconds) {
    size_t len = size_of(path);
    char *paged = map(path, len, MAP_SHARED, 0), *right = twin(path, len, 0);
    CHECK(memcmp(paged, right, len) == 0);
    char bytes[24];
    snprintf(bytes, sizeof bytes, "%zu", len);
    start(program, "watch", path, seed, seconds, bytes);
    CHECK(memcmp(paged, right, len / 2) == 0);
    execl(program, program, "watch", path, seed, seconds, bytes, NULL);
    CHECK(!"executed");
}

int main(int count, char **arguments) {
    CHECK(count >= 4);
    wait_if_asked();
    state = strtoull(arguments[3], NULL, 10) << 32;
    if (strcmp(arguments[1], "make") == 0) {
        // A file of whole words whose last page is only partly used.
        int fd = open(arguments[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
        static uint64_t words[1 << 17];
        for (int mib = atoi(arguments[3]); mib > 0; mib--) {
            for (size_t i = 0; i < 1 << 17; i++) words[i] = i / WORDS % 37 == 5 ? 0 : mix(state++);
            size_t size = mib == 1 ? sizeof words - 1000 : sizeof words;
            CHECK(write(fd, words, size) == (ssize_t)size);
        }
        CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        return 0;
    }
    if (strcmp(arguments[1], "calls") == 0) calls(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "once") == 0) once(arguments[2], 1);
    if (strcmp(arguments[1], "cached") == 0) once(arguments[2], 0);
    if (strcmp(arguments[1], "named") == 0) named(arguments[2]);
    if (strcmp(arguments[1], "longer") == 0) longer(arguments[2]);
    if (strcmp(arguments[1], "passes") == 0) passes(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "random") == 0) random_words(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "again") == 0) again(arguments[2], atoi(arguments[4]), (size_t)atoi(arguments[5]) << 20);
    if (strcmp(arguments[1], "beside") == 0) beside(arguments[0], arguments[2], arguments[3]);
    if (strcmp(arguments[1], "change") == 0) change(arguments[0], arguments[2], arguments[3], arguments[4]);
    if (strcmp(arguments[1], "changes") == 0) changes(arguments[2], atoi(arguments[4]));
    if (strcmp(arguments[1], "watch") == 0) {
        watch_until(arguments[2], strtoull(arguments[5], NULL, 10), 0, atoi(arguments[4]));
        // What was started before an exec.
        for (int status; wait(&status) > 0;) CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (strcmp(arguments[1], "executes") == 0) executes(arguments[0], arguments[2], arguments[3], arguments[4]);
    puts("ok");
    return 0;
}

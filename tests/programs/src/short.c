/* A paged program that comes to the limits of what a process may have. What fails fails as it would
 * without Terapage, and nothing else does.
 *
 * short mappings         as many mappings as there may be (vm.max_map_count)
 * short processes USER   each limit on processes (RLIMIT_NPROC), as a user who has no others;
 *                        begins as root
 * short alone USER       one process of two threads: io_uring gets none for what would wait;
 *                        begins as root
 * short locked USER KIB  what a user may lock (RLIMIT_MEMLOCK) is enough for few rings of the usual
 *                        size, or for none
 * short rights USER      rights that no memory has, keys and files that there are not, and little
 *                        that may be locked: all is paged still
 * short pinned BLOCKS    blocks of 2 MiB that the kernel holds for io_uring; the budget is four
 *                        more
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define BYTES (48 * MIB)

static char *memory;

/* Forks, which may fail with `error`; the child sees all of memory, and is not stopped. */
static int forked(int error) {
    pid_t child = fork();
    if (child < 0) {
        CHECK(errno == error);
        return 0;
    }
    if (child == 0) {
        CHECK(differing(memory, BYTES, 1) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 1;
}

static void mappings(void) {
    size_t most = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(file != NULL && fscanf(file, "%zu", &most) == 1 && fclose(file) == 0);
    CHECK(forked(0));
    /* What is executable is not paged. All but a few hundred are used up there. */
    size_t bytes = (most - 400) * PAGE;
    char *others = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(others != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += 2 * PAGE)
        CHECK(mprotect(others + at, PAGE, PROT_NONE) == 0 || errno == ENOMEM);
    size_t kinds[5] = {0}, n = 0;
    char *mine = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mine != MAP_FAILED);
    fill(mine, BYTES, 2);
    for (size_t at = 0; n < 600; at += 16 * PAGE, n++) {
        char *page = mine + at;
        size_t kind = n % 5;
        int answer = 0;
        if (kind == 0)
            answer = mprotect(page, PAGE, PROT_READ);
        if (kind == 1)
            answer = mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0;
        if (kind == 2)
            answer = mlock(page, PAGE);
        if (kind == 3)
            answer = madvise(page, PAGE, MADV_WIPEONFORK);
        if (kind == 4)
            answer = mmap(page, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0;
        CHECK(answer == 0 || errno == ENOMEM || errno == EAGAIN);
        kinds[kind] += answer != 0;
        if (n % 50 == 0)
            forked(ENOMEM);
    }
    CHECK(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0 && kinds[3] > 0 && kinds[4] > 0);
    for (size_t at = 0; at < BYTES; at += PAGE)
        for (size_t word_at = 0; word_at < PAGE / 8; word_at++)
            /* The first page of a piece may be another's now. */
            CHECK(at % (16 * PAGE) == 0 || ((uint64_t *)(mine + at))[word_at] == word(2, at / 8 + word_at));
    CHECK(munmap(mine, BYTES) == 0 && munmap(others, bytes) == 0);
    CHECK(forked(0));
}

static char array[BYTES / 2];

static void rights(void) {
    struct rlimit limit = {MIB, MIB};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    fill(array, sizeof array, 2);
    char *large = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *inside = (char *)(((uintptr_t)array + PAGE - 1) / PAGE * PAGE);
    int unreadable = open("/dev/null", O_WRONLY);
    CHECK(large != MAP_FAILED && unreadable >= 0);
    fill(large, BYTES, 3);
    for (int i = 0; i < 2; i++) {
        char *at = i == 0 ? large : inside;
        size_t bytes = (i == 0 ? BYTES : sizeof array) - 2 * PAGE;
        CHECK(mprotect(at, bytes, 0x4000) == -1 && errno == EINVAL);
        CHECK(mprotect(at + 1, bytes, PROT_READ) == -1 && errno == EINVAL);
        CHECK(mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, 999, 0) == MAP_FAILED && errno == EBADF);
        CHECK(mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, unreadable, 0) == MAP_FAILED && errno == EACCES);
        CHECK(pkey_mprotect(at, bytes, PROT_READ, 99) == -1 && (errno == EINVAL || errno == ENOSYS));
        for (size_t done = 0; done < bytes - 2 * MIB; done += 2 * MIB)
            CHECK(mlock(at + done, 2 * MIB) == -1 && (errno == EPERM || errno == ENOMEM));
    }
    CHECK(differing(array, sizeof array, 2) == 0 && differing(large, BYTES, 3) == 0);
    /* Where nothing is: what comes there later is as if nobody had asked. */
    char *nothing = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(large, BYTES) == 0 && nothing != MAP_FAILED && munmap(nothing, PAGE) == 0);
    CHECK(mmap(large, BYTES, PROT_READ, MAP_PRIVATE | MAP_FIXED, 0, 1) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(nothing, PAGE, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, large) == MAP_FAILED && errno == EFAULT);
    CHECK(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == large);
    CHECK(not_zero(large, BYTES) == 0);
    fill(large, BYTES, 4);
    CHECK(differing(large, BYTES, 4) == 0);
}

static void become(unsigned user) {
    CHECK(setgid(user) == 0 && setuid(user) == 0);
}

static void processes(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NPROC, &limit) == 0);
    int forks = 0;
    for (limit.rlim_cur = 1; limit.rlim_cur < 16; limit.rlim_cur++) {
        CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
        forks += forked(EAGAIN);
    }
    CHECK(forks > 0 && forks < 15);
}

/* Called before there is a pager. */
static void alone(void) {
    struct rlimit limit = {2, 2};
    CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
}

static void locked(size_t kib) {
    struct rlimit limit = {kib << 10, kib << 10};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    pid_t children[15];
    int over[2];
    char none;
    CHECK(pipe(over) == 0);
    for (int i = 0; i < 15; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            close(over[1]);
            CHECK(read(over[0], &none, 1) == 0 && differing(memory, BYTES, 1) == 0);
            _exit(0);
        }
    }
    close(over[1]);
    for (int i = 0; i < 15; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
}

static void pinned(size_t blocks) {
    struct io_uring_params parameters = {0};
    struct iovec pieces[64];
    size_t block = 2 * MIB;
    char *first = (char *)(((uintptr_t)memory + block - 1) / block * block);
    int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    CHECK(ring >= 0 && blocks < 64);
    for (size_t i = 0; i < blocks; i++)
        pieces[i] = (struct iovec){first + i * block, PAGE};
    CHECK(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, pieces, blocks) == 0);
    for (uint64_t series = 1; series < 4; series++) {
        CHECK(differing(memory, BYTES, series) == 0);
        fill(memory, BYTES, series + 1);
    }
    CHECK(differing(memory, BYTES, 4) == 0);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    unsigned number = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (strcmp(argv[1], "alone") == 0) {
        become(number);
        alone();
    }
    memory = malloc(BYTES);
    CHECK(memory != NULL);
    fill(memory, BYTES, 1);
    CHECK(differing(memory, BYTES, 1) == 0);
    if (strcmp(argv[1], "mappings") == 0)
        mappings();
    if (strcmp(argv[1], "rights") == 0) {
        become(number);
        rights();
    }
    if (strcmp(argv[1], "processes") == 0) {
        become(number);
        processes();
    }
    if (strcmp(argv[1], "locked") == 0) {
        become(number);
        locked(argc > 3 ? (size_t)atoi(argv[3]) : 0);
    }
    if (strcmp(argv[1], "pinned") == 0)
        pinned(number);
    return 0;
}

/* A prototype: shared memory behind a pager. docs/limits.md says what follows from it.
 *
 * A memory file is mapped twice, and a child of a fork has both mappings, too. One thread resolves
 * the faults of both processes, and keeps at most an eighth of the pages in the file; the others
 * are in a store. Two threads and the child each have a word in every page, write it through one
 * mapping and check it through the other. At the end, the program shows what a pager cannot hear
 * of: reads of the file, and mappings that it does not know, find zeros.
 *
 * usage: shared_pager MIB ROUNDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE ((size_t)4096)
enum { MAPPINGS = 2, SPACES = 4, WORKERS = 2 };

static size_t pages, most, resident, rounds;
static int file, store;
static char *mappings[MAPPINGS];
/* A userfaultfd for each process. */
static int spaces[SPACES], space_count;
static unsigned char *is_in, *is_stored;
/* The pages that are in, oldest first. */
static size_t *queue, first, last;
static size_t missing, minor, protects, outs;
static atomic_int over;

/* Whether a request failed only because the process has ended, or lacks the mapping. */
static int is_gone(void) { return errno == ESRCH || errno == ENOENT; }

/* Protects a page from writes in every mapping of every process, or ends that. */
static void protect(size_t page, unsigned long mode) {
    for (int space = 0; space < space_count; space++)
        for (int m = 0; m < MAPPINGS && spaces[space] >= 0; m++) {
            struct uffdio_writeprotect ask = {{(uintptr_t)mappings[m] + page * PAGE, PAGE}, mode};
            CHECK(ioctl(spaces[space], UFFDIO_WRITEPROTECT, &ask) == 0 || is_gone());
        }
}

static void page_out(void) {
    char bytes[PAGE];
    size_t page = queue[first++ % pages];
    /* From here on nobody writes. Who tries to waits, and later finds the page missing. */
    protect(page, UFFDIO_WRITEPROTECT_MODE_WP);
    CHECK(pread(file, bytes, PAGE, page * PAGE) == (ssize_t)PAGE);
    CHECK(pwrite(store, bytes, PAGE, page * PAGE) == (ssize_t)PAGE);
    CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page * PAGE, PAGE) == 0);
    is_in[page] = 0, is_stored[page] = 1, resident--, outs++;
    protect(page, 0);
}

static void page_in(int space, uintptr_t at, size_t page) {
    static char bytes[PAGE] __attribute__((aligned(4096)));
    while (resident >= most)
        page_out();
    memset(bytes, 0, PAGE);
    if (is_stored[page])
        CHECK(pread(store, bytes, PAGE, page * PAGE) == (ssize_t)PAGE);
    struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)bytes, .len = PAGE};
    if (ioctl(space, UFFDIO_COPY, &copy) != 0) {
        CHECK(is_gone());
        return;
    }
    is_in[page] = 1, resident++, queue[last++ % pages] = page;
}

/* Maps a page that is in the file, and wakes who waits. */
static void map(int space, uintptr_t at) {
    struct uffdio_continue ask = {.range = {at, PAGE}};
    struct uffdio_range woken = {at, PAGE};
    CHECK(ioctl(space, UFFDIO_CONTINUE, &ask) == 0 || errno == EEXIST || is_gone());
    CHECK(ioctl(space, UFFDIO_WAKE, &woken) == 0 || is_gone());
}

static void fault(int space, const struct uffd_msg *message) {
    uintptr_t at = message->arg.pagefault.address / PAGE * PAGE;
    size_t page = 0;
    for (int m = 0; m < MAPPINGS; m++)
        if (at - (uintptr_t)mappings[m] < pages * PAGE)
            page = (at - (uintptr_t)mappings[m]) / PAGE;
    if (message->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
        struct uffdio_writeprotect ask = {{at, PAGE}, 0};
        protects++;
        CHECK(ioctl(space, UFFDIO_WRITEPROTECT, &ask) == 0 || is_gone());
    } else if (is_in[page]) {
        /* Brought for another mapping, or in the file for that one all the time. */
        minor++;
        map(space, at);
    } else {
        missing++;
        page_in(space, at, page);
    }
}

static void *resolve(void *unused) {
    (void)unused;
    while (!over) {
        struct pollfd polled[SPACES];
        int count = space_count;
        for (int space = 0; space < count; space++)
            polled[space] = (struct pollfd){spaces[space], POLLIN, 0};
        if (poll(polled, count, 100) <= 0)
            continue;
        for (int space = 0; space < count; space++) {
            struct uffd_msg message;
            if (polled[space].revents & POLLHUP)
                spaces[space] = -1;
            else if (polled[space].revents & POLLIN && read(spaces[space], &message, sizeof message) == sizeof message) {
                if (message.event == UFFD_EVENT_FORK) {
                    CHECK(space_count < SPACES);
                    spaces[space_count++] = message.arg.fork.ufd;
                } else {
                    CHECK(message.event == UFFD_EVENT_PAGEFAULT);
                    fault(spaces[space], &message);
                }
            }
        }
    }
    return NULL;
}

static uint64_t value(size_t page, size_t round) { return page * 0x9e3779b97f4a7c15 + round; }

static volatile uint64_t *cell(char *mapping, size_t page, size_t worker) {
    return (volatile uint64_t *)(mapping + page * PAGE) + worker;
}

/* The rounds of a worker; how many words were wrong. */
static void *work(void *number) {
    size_t worker = (size_t)(uintptr_t)number, wrong = 0;
    for (size_t round = 1; round <= rounds; round++) {
        char *to = mappings[round % MAPPINGS], *from = mappings[(round + 1) % MAPPINGS];
        for (size_t i = 0; i < pages; i++) {
            size_t page = worker ? i : i * 7919 % pages;
            *cell(to, page, worker) = value(page, round);
        }
        for (size_t page = 0; page < pages; page++)
            wrong += *cell(from, page, worker) != value(page, round);
    }
    return (void *)(uintptr_t)wrong;
}

static char *mapped(void) {
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void begin(void) {
    spaces[space_count++] = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (spaces[0] < 0) {
        puts("SKIPPED: userfaultfd is not allowed");
        exit(0);
    }
    struct uffdio_api api = {.api = UFFD_API};
    api.features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    if (ioctl(spaces[0], UFFDIO_API, &api) != 0) {
        puts("SKIPPED: this kernel does not protect shared memory, or CAP_SYS_PTRACE is missing");
        exit(0);
    }
    for (int m = 0; m < MAPPINGS; m++) {
        mappings[m] = mapped();
        struct uffdio_register ask = {.range = {(uintptr_t)mappings[m], pages * PAGE}};
        ask.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
        CHECK(ioctl(spaces[0], UFFDIO_REGISTER, &ask) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    pages = strtoull(argv[1], NULL, 10) << 8, most = pages / 8, rounds = strtoull(argv[2], NULL, 10);
    is_in = calloc(pages, 1), is_stored = calloc(pages, 1), queue = calloc(pages, sizeof *queue);
    file = memfd_create("shared", 0), store = memfd_create("store", 0);
    CHECK(is_in && is_stored && queue && ftruncate(file, pages * PAGE) == 0 && ftruncate(store, pages * PAGE) == 0);
    begin();
    pthread_t pager, workers[WORKERS];
    CHECK(pthread_create(&pager, NULL, resolve, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(work((void *)(uintptr_t)WORKERS) != NULL);
    size_t wrong = 0;
    for (size_t i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < WORKERS; i++) {
        void *count;
        CHECK(pthread_join(workers[i], &count) == 0);
        wrong += (size_t)count;
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    for (size_t page = 0; page < pages; page++)
        wrong += *cell(mappings[0], page, WORKERS) != value(page, rounds);
    size_t unread = 0, unknown = 0;
    for (size_t page = 0; page < pages; page++) {
        uint64_t got;
        CHECK(pread(file, &got, sizeof got, page * PAGE) == sizeof got);
        unread += got != value(page, rounds);
    }
    over = 1;
    CHECK(pthread_join(pager, NULL) == 0);
    char *stranger = mapped();
    for (size_t page = 0; page < pages; page++)
        unknown += *cell(stranger, page, 0) != value(page, rounds);
    printf("%zu pages, at most %zu in: %zu missing, %zu minor, %zu protected, %zu paged out\n", pages, most, missing, minor, protects, outs);
    printf("wrong: %zu words, child %d; read from the file %zu, by a mapping that is not registered %zu\n", wrong, status, unread, unknown);
    return wrong != 0 || status != 0 || outs == 0 || unread == 0 || unknown == 0;
}

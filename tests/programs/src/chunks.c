/* Small reservations of which all is opened, as JavaScript engines make them for each piece of
 * their heaps; and a program that takes its addresses where it wants them, or not at all.
 *
 * usage: chunks MIB
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define CHUNK ((size_t)256 << 10)
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

/* A chunk on a multiple of its size: more is reserved, and cut; nobody gets the place it names. */
static char *chunk(size_t index)
{
    size_t more = CHUNK - PAGE;
    char *hint = (char *)(0x120000000000 + index * 16 * CHUNK);
    char *at = mmap(hint, CHUNK + more, PROT_NONE, RESERVE, -1, 0);
    CHECK(at != MAP_FAILED && is_closed(at) && is_closed(at + CHUNK + more - 1));
    CHECK(madvise(at, CHUNK + more, MADV_DONTFORK) == 0 && madvise(at, CHUNK + more, MADV_DOFORK) == 0);
    char *from = (char *)(((uintptr_t)at + more) / CHUNK * CHUNK);
    if (from > at)
        CHECK(munmap(at, from - at) == 0);
    if (from < at + more)
        CHECK(munmap(from + CHUNK, at + more - from) == 0);
    CHECK(mprotect(from, CHUNK, READ_WRITE) == 0 && not_zero(from, CHUNK) == 0);
    fill(from, CHUNK, index);
    return from;
}

static void chunks(size_t bytes)
{
    size_t many = bytes / CHUNK;
    char **all = calloc(many, sizeof *all);
    for (size_t index = 0; index < many; index++)
        all[index] = chunk(index);
    for (size_t index = 0; index < many; index++) {
        CHECK(differing(all[index], CHUNK, index) == 0);
        if (index % 3 != 1)
            continue;
        /* Closed, dropped and given back, in this order. */
        CHECK(mprotect(all[index], CHUNK, PROT_NONE) == 0 && is_closed(all[index]));
        CHECK(madvise(all[index], CHUNK, MADV_DONTNEED) == 0 && munmap(all[index], CHUNK) == 0);
        all[index] = chunk(index);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    for (size_t index = 0; index < many; index++)
        CHECK(differing(all[index], CHUNK, index) == 0);
    if (child == 0)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (size_t index = 0; index < many; index++)
        CHECK(munmap(all[index], CHUNK) == 0);
    free(all);
}

/* Guards: closed for good, with room between them. */
static void guards(void)
{
    enum { MANY = 400 };
    char *all[MANY];
    for (int index = 0; index < MANY; index++) {
        all[index] = mmap(NULL, 24 * PAGE, PROT_NONE, RESERVE, -1, 0);
        CHECK(all[index] != MAP_FAILED && mprotect(all[index] + 9 * PAGE, 3 * PAGE, READ_WRITE) == 0);
        fill(all[index] + 9 * PAGE, 3 * PAGE, index);
        CHECK(is_closed(all[index]) && is_closed(all[index] + 9 * PAGE - 1) && is_closed(all[index] + 12 * PAGE));
    }
    for (int index = 0; index < MANY; index++)
        CHECK(differing(all[index] + 9 * PAGE, 3 * PAGE, index) == 0 && munmap(all[index], 24 * PAGE) == 0);
}

/* Java's ZGC: three views of one file at places that it chooses, and it ends where it does not get
 * them. It tries others meanwhile. */
#define VIEWS 3
#define TRIES 8192

static void at_named_places(void)
{
    size_t whole = 1024 * MIB;
    int fd = memfd_create("heap", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4 * MIB) == 0);
    char *views[VIEWS] = {NULL};
    for (size_t try = 0; try < TRIES && views[VIEWS - 1] == NULL; try++) {
        for (int view = 0; view < VIEWS; view++) {
            char *place = (char *)((0x40000000000 << view) + try * 512 * MIB);
            views[view] = mmap(place, whole, PROT_NONE, RESERVE, -1, 0);
            CHECK(views[view] != MAP_FAILED);
            if (views[view] == place)
                continue;
            for (; view >= 0; view--) {
                CHECK(munmap(views[view], whole) == 0);
                views[view] = NULL;
            }
            break;
        }
    }
    CHECK(views[VIEWS - 1] != NULL);
    for (int view = 0; view < VIEWS; view++)
        CHECK(mmap(views[view], 4 * MIB, READ_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == views[view]);
    fill(views[0], 4 * MIB, 7);
    for (int view = 1; view < VIEWS; view++)
        CHECK(differing(views[view], 4 * MIB, 7) == 0 && is_closed(views[view] + 4 * MIB));
    for (int view = 0; view < VIEWS; view++)
        CHECK(munmap(views[view], whole) == 0);
    CHECK(close(fd) == 0);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) * MIB;
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    chunks(bytes);
    puts("chunks: ok");
    guards();
    puts("guards: ok");
    at_named_places();
    puts("at named places: ok");
    chunks(bytes / 2);
    puts("chunks after that: ok");
    return 0;
}

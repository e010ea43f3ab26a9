/* What the walks of random system calls share: pages that several threads use by calls of all
 * kinds, with a timer's signals and forks in between, and are checked against a model, which lies
 * outside.
 *
 * usage of such a program: CALLS [THREADS [SEED [KINDS]]]     the seed is printed; KINDS: bits of
 *                                                             the program's kinds of calls, and
 *                                                             TIMER
 */
#ifndef CALL_WALK_H
#define CALL_WALK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"
#include "page.h"

/* Pages of a thread's data: a sixth of them static, the rest allocated. */
#define PAGES 1536
#define STATIC 256
#define THREADS 4
#define STACK ((size_t)128 << 10)
/* The bit for the timer. */
#define TIMER (1ull << 63)
#define AGAIN(call)                                                                                          \
    ({                                                                                                       \
        long answer_;                                                                                        \
        do                                                                                                   \
            answer_ = (call);                                                                                \
        while (answer_ < 0 && errno == EINTR);                                                               \
        answer_;                                                                                             \
    })

struct walker {
    uint64_t state;
    /* Of each page's words; 0: they are zeros. Not paged. */
    uint64_t *series;
    int index, depth;
    /* In paged memory: what calls are given beside buffers. The program says what is in it. */
    struct scratch *scratch;
};

/* A kind of calls, and how seldom it is, among all. */
struct kind {
    void (*call)(struct walker *);
    unsigned one_in;
};

/* A program that walks. */
struct program {
    size_t scratch_bytes;
    /* Opens what a process or thread has for itself, and closes it. May be NULL. */
    void (*begin)(struct walker *), (*end)(struct walker *);
    struct kind kinds[16];
};

static const struct program *program;
static char fixed[THREADS][STATIC * PAGE] __attribute__((aligned(PAGE_BYTES)));
static char *moving[THREADS];
static size_t calls, threads;
static uint64_t chosen = ~0ull;
static char *handlers;
static atomic_ulong handled;
static __thread struct walker *walking;

static inline char *place(struct walker *w, size_t page)
{
    return page < STATIC ? fixed[w->index] + page * PAGE : moving[w->index] + (page - STATIC) * PAGE;
}

static inline uint64_t chance(struct walker *w, uint64_t of)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return (w->state >> 33) % of;
}

/* Memory of the kernel's, which is not paged, and the process's own after a fork. */
static inline void *outside(size_t bytes)
{
    void *at = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    CHECK(at != MAP_FAILED);
    return at;
}

static inline void check_page(struct walker *w, size_t page)
{
    size_t wrong = w->series[page] ? differing(place(w, page), PAGE, w->series[page]) : not_zero(place(w, page), PAGE);
    if (wrong)
        fprintf(stderr, "thread %d, depth %d, page %zu at %p: %zu words\n", w->index, w->depth, page, place(w, page), wrong);
    CHECK(wrong == 0);
}

static inline void check_all(struct walker *w)
{
    for (size_t page = 0; page < PAGES; page++)
        check_page(w, page);
}

/* Pages that lie together: static, or allocated. */
static inline size_t some(struct walker *w, size_t count)
{
    return chance(w, 6) ? STATIC + chance(w, PAGES - STATIC - count) : chance(w, STATIC - count);
}

static inline void refill(struct walker *w, size_t page)
{
    w->series[page] = 1 + chance(w, 1 << 30);
    fill(place(w, page), PAGE, w->series[page]);
}

/* Checks neighbours, and writes to half of them. */
static inline void touches(struct walker *w)
{
    size_t page = chance(w, PAGES - 8);
    for (size_t i = page; i < page + 8; i++) {
        check_page(w, i);
        if (chance(w, 2))
            refill(w, i);
    }
}

/* The allocated pages go elsewhere. */
static inline void moves(struct walker *w)
{
    char *old = moving[w->index], *new = aligned_alloc(PAGE, (PAGES - STATIC + chance(w, 100)) * PAGE);
    CHECK(new != NULL);
    memcpy(new, old, (PAGES - STATIC) * PAGE);
    free(old);
    moving[w->index] = new;
}

/* One call, or, in three of eight cases, none. */
static inline void step(struct walker *w)
{
    size_t count = 0;
    while (program->kinds[count].call)
        count++;
    size_t kind = chance(w, count + count * 3 / 5);
    if (kind >= count || !(chosen >> kind & 1))
        touches(w);
    else if (chance(w, program->kinds[kind].one_in) == 0)
        program->kinds[kind].call(w);
}

/* What a child may do before anything else. */
static inline void child_begins(int how)
{
    switch (how) {
    case 0:
        CHECK(close_range(3, ~0u, 0) == 0);
        break;
    case 1:
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        break;
    case 2: {
        struct rlimit few = {100, 100};
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        break;
    }
    case 3:
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        break;
    case 4:
        prctl(PR_SET_DUMPABLE, 0);
        CHECK(chdir("/") == 0);
        for (int fd = 600; fd < 800; fd += 7)
            dup2(2, fd);
        break;
    }
}

/* A child that checks everything, and goes on for a while. */
static inline void forks(struct walker *w)
{
    if (w->depth >= 3)
        return;
    int how = chance(w, 6);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        w->depth++;
        child_begins(how);
        if (program->begin)
            program->begin(w);
        check_all(w);
        for (int i = chance(w, 12); i > 0; i--)
            step(w);
        check_all(w);
        _exit(7);
    }
    int status;
    CHECK(AGAIN(waitpid(child, &status, 0)) == child);
    if (status != 7 << 8)
        fprintf(stderr, "child of depth %d, how %d: status %x\n", w->depth + 1, how, status);
    CHECK(status == 7 << 8);
}

/* Comes at any time, on a stack in paged memory. */
static inline void on_alarm(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    (void)context;
    int kept = errno;
    size_t at = atomic_fetch_add(&handled, 1) * 37 % (PAGES - 1) * PAGE;
    CHECK(differing(handlers + at, PAGE, at) == 0);
    errno = kept;
}

static inline void *walk(void *argument)
{
    struct walker *w = argument;
    walking = w;
    if (program->begin)
        program->begin(w);
    stack_t other = {.ss_sp = malloc(STACK), .ss_size = STACK};
    CHECK(other.ss_sp != NULL && sigaltstack(&other, NULL) == 0);
    for (size_t call = 0; call < calls; call++)
        step(w);
    check_all(w);
    if (program->end)
        program->end(w);
    other.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&other, NULL) == 0);
    free(other.ss_sp);
    return NULL;
}

/* The whole walk, as the words of the command say. */
static inline int walk_all(const struct program *walked, int argc, char **argv)
{
    program = walked;
    calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 400;
    threads = argc > 2 ? strtoull(argv[2], NULL, 10) : 2;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)getpid();
    if (argc > 4)
        chosen = strtoull(argv[4], NULL, 0);
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct walker *walkers = outside(THREADS * sizeof *walkers);
    handlers = malloc(PAGES * PAGE);
    CHECK(handlers != NULL && threads <= THREADS);
    for (size_t at = 0; at < PAGES * PAGE; at += PAGE)
        fill(handlers + at, PAGE, at);
    struct sigaction alarm = {.sa_sigaction = on_alarm, .sa_flags = SA_ONSTACK | SA_RESTART | SA_SIGINFO};
    CHECK(sigaction(SIGALRM, &alarm, NULL) == 0);
    pthread_t started[THREADS];
    for (size_t i = 0; i < threads; i++) {
        walkers[i] = (struct walker){.state = seed + i, .series = outside(PAGES * sizeof(uint64_t)), .index = i, .scratch = malloc(program->scratch_bytes)};
        moving[i] = aligned_alloc(PAGE, (PAGES - STATIC) * PAGE);
        CHECK(moving[i] && walkers[i].scratch);
        memset(moving[i], 0, (PAGES - STATIC) * PAGE);
    }
    if (chosen & TIMER) {
        struct itimerval timer = {{0, 3000}, {0, 3000}};
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    }
    for (size_t i = 1; i < threads; i++)
        CHECK(pthread_create(&started[i], NULL, walk, &walkers[i]) == 0);
    walk(&walkers[0]);
    for (size_t i = 1; i < threads; i++)
        CHECK(pthread_join(started[i], NULL) == 0);
    printf("%zu calls by each of %zu threads\n", calls, threads);
    return 0;
}
#endif

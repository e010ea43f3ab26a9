/* Random system calls with buffers in paged memory, by several threads, with timers, forks, and stacks in paged memory: what each page holds is checked
 * against a model, which lies outside.
 *
 * usage: call_walk CALLS [THREADS [SEED [KINDS]]]     the seed is printed; KINDS: bits of the kinds of calls in `step`
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#include "check.h"

#define PAGE ((size_t)4096)
/* Pages of a thread's data: a sixth of them static, the rest allocated. */
#define PAGES 1536
#define STATIC 256
#define THREADS 4
/* Pages that one call moves at most: what a pipe holds. */
#define MOST 16
#define STACK ((size_t)128 << 10)
/* Pieces of a transfer. */
#define PIECES 8
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
    int index, depth, file, direct;
    /* In paged memory: what calls are given beside buffers. */
    struct scratch *scratch;
    /* For a thread, and for another thread of control of this one, which is `elsewhere` then. */
    char *stack, *other_stack;
    int is_elsewhere;
};

struct scratch {
    struct iovec from[PIECES], into[PIECES];
    struct msghdr message;
    char control[CMSG_SPACE(sizeof(int))];
    struct pollfd polled[2];
    struct epoll_event events[2];
    fd_set read;
    struct timespec times[2];
    int pair[2], pipe[2], words[4];
    char text[2 * PAGE];
    char mincore[PAGES];
    sigjmp_buf jump;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_barrier_t barrier;
    pthread_rwlock_t shared;
    sem_t posted;
    uint64_t counter;
};

static char fixed[THREADS][STATIC * PAGE] __attribute__((aligned(4096)));
static char *moving[THREADS];
static size_t calls, threads;
static uint64_t kinds = ~0ull;
static char *handlers;
static atomic_ulong handled;
static __thread struct walker *walking;

static char *place(struct walker *w, size_t page)
{
    return page < STATIC ? fixed[w->index] + page * PAGE : moving[w->index] + (page - STATIC) * PAGE;
}

static uint64_t chance(struct walker *w, uint64_t of)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return (w->state >> 33) % of;
}

/* Memory of the kernel's, which is not paged, and the process's own after a fork. */
static void *outside(size_t bytes)
{
    void *at = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    CHECK(at != MAP_FAILED);
    return at;
}

static void check_page(struct walker *w, size_t page)
{
    size_t wrong = w->series[page] ? differing(place(w, page), PAGE, w->series[page]) : not_zero(place(w, page), PAGE);
    if (wrong)
        fprintf(stderr, "thread %d, depth %d, page %zu at %p: %zu words\n", w->index, w->depth, page, place(w, page), wrong);
    CHECK(wrong == 0);
}

static void check_all(struct walker *w)
{
    for (size_t page = 0; page < PAGES; page++)
        check_page(w, page);
}

/* Pages that lie together: static, or allocated. */
static size_t some(struct walker *w, size_t count)
{
    return chance(w, 6) ? STATIC + chance(w, PAGES - STATIC - count) : chance(w, STATIC - count);
}

/* Two ranges that are apart, and how long they are. */
static size_t two(struct walker *w, size_t *from, size_t *into)
{
    size_t count = 1 + chance(w, chance(w, 3) ? 3 : MOST - 1);
    do {
        *from = some(w, count);
        *into = some(w, count);
    } while (*from < *into + count && *into < *from + count);
    return count;
}

/* The second range holds what the first does now. */
static void is_copied(struct walker *w, size_t from, size_t into, size_t count)
{
    memcpy(w->series + into, w->series + from, count * sizeof *w->series);
    check_page(w, into + chance(w, count));
    check_page(w, from + chance(w, count));
}

/* Cuts a range into pieces, anywhere. */
static int cut(struct walker *w, struct iovec *pieces, char *at, size_t bytes)
{
    int count = 0;
    while (count < PIECES - 1 && bytes > 0) {
        size_t part = chance(w, 4) ? chance(w, bytes + 1) : bytes;
        pieces[count++] = (struct iovec){at, part};
        at += part;
        bytes -= part;
    }
    if (bytes > 0)
        pieces[count++] = (struct iovec){at, bytes};
    return count;
}

/* Moves on in pieces by what was done. */
static void advance(struct iovec **pieces, int *count, size_t done)
{
    while (*count > 0 && done >= (*pieces)->iov_len) {
        done -= (*pieces)->iov_len;
        ++*pieces;
        --*count;
    }
    if (*count > 0) {
        (*pieces)->iov_base = (char *)(*pieces)->iov_base + done;
        (*pieces)->iov_len -= done;
    }
}

static void write_all(struct walker *w, int fd, size_t from, size_t count)
{
    struct iovec *pieces = w->scratch->from;
    int n = cut(w, pieces, place(w, from), count * PAGE);
    for (size_t left = count * PAGE; left > 0;) {
        ssize_t done = AGAIN(writev(fd, pieces, n));
        CHECK(done > 0);
        left -= done;
        advance(&pieces, &n, done);
    }
}

static void read_all(struct walker *w, int fd, size_t into, size_t count)
{
    struct iovec *pieces = w->scratch->into;
    int n = cut(w, pieces, place(w, into), count * PAGE);
    for (size_t left = count * PAGE; left > 0;) {
        ssize_t done = AGAIN(readv(fd, pieces, n));
        CHECK(done > 0);
        left -= done;
        advance(&pieces, &n, done);
    }
}

static void through_pipe(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into);
    int *ends = w->scratch->pipe, spliced[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && pipe2(spliced, O_CLOEXEC) == 0);
    size_t bytes = count * PAGE;
    struct iovec whole = {place(w, from), bytes};
    switch (chance(w, 4)) {
    case 0:
        CHECK(AGAIN(vmsplice(ends[1], &whole, 1, 0)) == (ssize_t)bytes);
        break;
    default:
        write_all(w, ends[1], from, count);
    }
    int out = ends[0];
    switch (chance(w, 4)) {
    case 0:
        for (size_t left = bytes; left > 0;) {
            ssize_t done = AGAIN(splice(ends[0], NULL, spliced[1], NULL, left, 0));
            CHECK(done > 0);
            left -= done;
        }
        out = spliced[0];
        break;
    case 1: {
        size_t other = some(w, count);
        ssize_t done = AGAIN(tee(ends[0], spliced[1], bytes, 0));
        CHECK(done > 0);
        done = done / PAGE * PAGE;
        if (done > 0 && (other >= from + count || from >= other + count)) {
            CHECK(AGAIN(read(spliced[0], place(w, other), done)) == done);
            is_copied(w, from, other, done / PAGE);
        }
        break;
    }
    default:;
    }
    read_all(w, out, into, count);
    is_copied(w, from, into, count);
    close(ends[0]);
    close(ends[1]);
    close(spliced[0]);
    close(spliced[1]);
}

static void through_file(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    int fd = chance(w, 2) ? w->file : w->direct;
    off_t at = chance(w, 64) * PAGE;
    char *out = place(w, from), *in = place(w, into);
    struct scratch *s = w->scratch;
    if (chance(w, 2))
        CHECK(AGAIN(pwrite(fd, out, bytes, at)) == (ssize_t)bytes);
    else {
        s->from[0] = (struct iovec){out, bytes / PAGE / 2 * PAGE};
        s->from[1] = (struct iovec){out + s->from[0].iov_len, bytes - s->from[0].iov_len};
        CHECK(AGAIN(pwritev(fd, s->from, 2, at)) == (ssize_t)bytes);
    }
    int ends[2];
    switch (chance(w, 4)) {
    case 0:
        CHECK(AGAIN(pread(fd, in, bytes, at)) == (ssize_t)bytes);
        break;
    case 1:
        s->into[0] = (struct iovec){in, bytes / PAGE / 2 * PAGE};
        s->into[1] = (struct iovec){in + s->into[0].iov_len, bytes - s->into[0].iov_len};
        CHECK(AGAIN(preadv2(fd, s->into, 2, at, 0)) == (ssize_t)bytes);
        break;
    case 2:
        CHECK(pipe(ends) == 0);
        for (size_t left = bytes; left > 0;) {
            ssize_t done = AGAIN(sendfile(ends[1], fd, &at, left));
            CHECK(done > 0);
            left -= done;
        }
        read_all(w, ends[0], into, count);
        close(ends[0]);
        close(ends[1]);
        break;
    default: {
        char *mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, at);
        CHECK(mapped != MAP_FAILED);
        memcpy(in, mapped, bytes);
        CHECK(munmap(mapped, bytes) == 0);
    }
    }
    is_copied(w, from, into, count);
}

static void through_socket(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    struct scratch *s = w->scratch;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s->pair) == 0);
    s->message = (struct msghdr){.msg_iov = s->from, .msg_iovlen = cut(w, s->from, place(w, from), bytes), .msg_control = s->control, .msg_controllen = sizeof s->control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&s->message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &w->file, sizeof(int));
    CHECK(AGAIN(sendmsg(s->pair[0], &s->message, 0)) == (ssize_t)bytes);
    memset(s->control, 0, sizeof s->control);
    int peeks = chance(w, 3) == 0;
    for (int round = 0; round <= peeks; round++) {
        s->message = (struct msghdr){.msg_iov = s->into, .msg_iovlen = cut(w, s->into, place(w, into), bytes), .msg_control = s->control, .msg_controllen = sizeof s->control};
        ssize_t done = AGAIN(recvmsg(s->pair[1], &s->message, round < peeks ? MSG_PEEK : MSG_WAITALL));
        /* A signal ends it early. */
        CHECK(done > 0);
        head = CMSG_FIRSTHDR(&s->message);
        int got;
        CHECK(head && head->cmsg_type == SCM_RIGHTS);
        memcpy(&got, CMSG_DATA(head), sizeof got);
        CHECK(close(got) == 0);
        for (size_t rest = done; round == peeks && rest < bytes; rest += done) {
            done = AGAIN(recv(s->pair[1], place(w, into) + rest, bytes - rest, MSG_WAITALL));
            CHECK(done > 0);
        }
    }
    is_copied(w, from, into, count);
    close(s->pair[0]);
    close(s->pair[1]);
}

static void by_process(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    struct scratch *s = w->scratch;
    int out = cut(w, s->from, place(w, from), bytes), in = cut(w, s->into, place(w, into), bytes);
    if (chance(w, 2))
        CHECK(process_vm_readv(getpid(), s->into, in, s->from, out, 0) == (ssize_t)bytes);
    else
        CHECK(process_vm_writev(getpid(), s->from, out, s->into, in, 0) == (ssize_t)bytes);
    is_copied(w, from, into, count);
}

static void by_ring(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    struct io_uring_params params = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0)
        return;
    char *queue = mmap(NULL, params.sq_off.array + 4 * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, 4 * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    char *ended = mmap(NULL, params.cq_off.cqes + 8 * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    CHECK(queue != MAP_FAILED && entries != MAP_FAILED && ended != MAP_FAILED);
    int fd = chance(w, 2) ? w->file : w->direct, registered = chance(w, 3) == 0;
    if (registered) {
        w->scratch->from[0] = (struct iovec){place(w, from), bytes};
        w->scratch->from[1] = (struct iovec){place(w, into), bytes};
        registered = syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, w->scratch->from, 2) == 0;
    }
    int async = chance(w, 2) ? IOSQE_ASYNC : 0;
    for (int way = 0; way < 2; way++) {
        char *at = place(w, way ? into : from);
        struct io_uring_sqe entry = {.flags = async, .fd = fd, .off = 0, .addr = (uintptr_t)at, .len = bytes, .opcode = way ? IORING_OP_READ : IORING_OP_WRITE};
        if (registered) {
            entry.opcode = way ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
            entry.buf_index = way;
            /* Others may go out meanwhile; these cannot. */
            for (int i = 0; i < 40; i++)
                check_page(w, chance(w, PAGES));
        } else if (chance(w, 2)) {
            entry.opcode = way ? IORING_OP_READV : IORING_OP_WRITEV;
            w->scratch->into[0] = (struct iovec){at, bytes};
            entry.addr = (uintptr_t)w->scratch->into;
            entry.len = 1;
        }
        entries[0] = entry;
        unsigned *tail = (unsigned *)(queue + params.sq_off.tail), *array = (unsigned *)(queue + params.sq_off.array);
        array[*tail & 3] = 0;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        CHECK(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1);
        unsigned *head = (unsigned *)(ended + params.cq_off.head), *last = (unsigned *)(ended + params.cq_off.tail);
        while (__atomic_load_n(last, __ATOMIC_ACQUIRE) == *head)
            AGAIN(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
        struct io_uring_cqe *cqe = (struct io_uring_cqe *)(ended + params.cq_off.cqes) + (*head & 7);
        if (cqe->res == -ECANCELED || cqe->res == -EINTR) {
            /* A signal came, or the kernel's thread ended. */
            way--;
            __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
            continue;
        }
        if (cqe->res != (int)bytes)
            fprintf(stderr, "ring: %d of %zu, direct %d registered %d async %d\n", cqe->res, bytes, fd == w->direct, registered, async);
        CHECK(cqe->res == (int)bytes);
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    }
    CHECK(close(ring) == 0);
    munmap(queue, params.sq_off.array + 4 * sizeof(unsigned));
    munmap(entries, 4 * sizeof *entries);
    munmap(ended, params.cq_off.cqes + 8 * sizeof(struct io_uring_cqe));
    is_copied(w, from, into, count);
}

static void by_aio(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 4, &context) < 0)
        return;
    int fd = chance(w, 2) ? w->file : w->direct;
    for (int way = 0; way < 2; way++) {
        struct iocb block = {.aio_fildes = fd, .aio_buf = (uintptr_t)place(w, way ? into : from), .aio_nbytes = bytes, .aio_lio_opcode = way ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE};
        struct iocb *all[1] = {&block};
        struct io_event *event = (struct io_event *)w->scratch->text;
        CHECK(AGAIN(syscall(SYS_io_submit, context, 1, all)) == 1);
        CHECK(AGAIN(syscall(SYS_io_getevents, context, 1, 1, event, NULL)) == 1);
        CHECK(event->res == (long)bytes);
    }
    CHECK(syscall(SYS_io_destroy, context) == 0);
    is_copied(w, from, into, count);
}

static void small_calls(struct walker *w)
{
    size_t page = some(w, 2);
    char *at = place(w, page) + chance(w, PAGE), name[64], here[256];
    /* These fill a part of two pages, which are filled anew after that. */
    memset(at, 7, 256);
    switch (chance(w, 8)) {
    case 0:
        CHECK(getrandom(at, 256, 0) == 256);
        break;
    case 1: {
        snprintf(name, sizeof name, "/proc/self/fd/%d", w->file);
        ssize_t len = readlink(name, here, 256);
        CHECK(readlink(name, at, 256) == len && memcmp(at, here, len) == 0 && at[len] == 7);
        break;
    }
    case 2:
        CHECK(getcwd(here, 256) && getcwd(at, 256) && strcmp(here, at) == 0);
        break;
    case 3: {
        int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
        CHECK(dir >= 0 && syscall(SYS_getdents64, dir, at, 256) > 0);
        close(dir);
        break;
    }
    case 4:
        w->scratch->polled[0] = (struct pollfd){w->file, POLLIN, 0};
        w->scratch->times[0] = (struct timespec){1, 0};
        CHECK(AGAIN(ppoll(w->scratch->polled, 1, w->scratch->times, NULL)) == 1 && w->scratch->polled[0].revents == POLLIN);
        break;
    case 5: {
        int epoll = epoll_create1(0), *ends = w->scratch->pipe;
        CHECK(epoll >= 0 && pipe(ends) == 0);
        w->scratch->events[0] = (struct epoll_event){EPOLLOUT, {.u64 = 42}};
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], w->scratch->events) == 0);
        w->scratch->events[1].data.u64 = 0;
        CHECK(AGAIN(epoll_wait(epoll, w->scratch->events + 1, 1, -1)) == 1 && w->scratch->events[1].data.u64 == 42);
        if (ends[1] < FD_SETSIZE) {
            FD_ZERO(&w->scratch->read);
            FD_SET(ends[1], &w->scratch->read);
            CHECK(select(ends[1] + 1, NULL, &w->scratch->read, NULL, NULL) == 1 && FD_ISSET(ends[1], &w->scratch->read));
        }
        close(ends[0]);
        close(ends[1]);
        close(epoll);
        break;
    }
    case 6: {
        static const char *files[] = {"/proc/self/maps", "/proc/self/smaps", "/proc/self/status", "/proc/self/pagemap"};
        int fd = open(files[chance(w, 4)], O_RDONLY);
        CHECK(fd >= 0);
        CHECK(AGAIN(read(fd, w->scratch->text, sizeof w->scratch->text)) > 0);
        close(fd);
        break;
    }
    default:
        CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, w->scratch->times) == 0 && w->scratch->times[0].tv_sec > 0);
        w->scratch->times[1] = (struct timespec){0, 1000};
        nanosleep(w->scratch->times + 1, w->scratch->times);
    }
    for (size_t i = 0; i < 2; i++) {
        w->series[page + i] = 1 + chance(w, 1 << 30);
        fill(place(w, page + i), PAGE, w->series[page + i]);
    }
}

static void advises(struct walker *w)
{
    static const int KEEP[] = {MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, 25, MADV_DONTDUMP, MADV_DODUMP, MADV_WILLNEED, MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL};
    size_t count = 1 + chance(w, 60), from = some(w, count), bytes = count * PAGE;
    char *at = place(w, from);
    switch (chance(w, 8)) {
    case 0:
        CHECK(madvise(at, bytes, MADV_DONTNEED) == 0);
        memset(w->series + from, 0, count * sizeof *w->series);
        break;
    case 1:
        /* Then a page may be empty, or not, until it is written. */
        CHECK(madvise(at, bytes, MADV_FREE) == 0);
        for (size_t page = from; page < from + count; page++) {
            w->series[page] = 1 + chance(w, 1 << 30);
            fill(place(w, page), PAGE, w->series[page]);
        }
        break;
    case 2:
        CHECK(mincore(at, bytes, (unsigned char *)w->scratch->mincore) == 0);
        break;
    case 3:
        CHECK(msync(at, bytes, chance(w, 2) ? MS_SYNC : MS_ASYNC) == 0);
        break;
    case 4:
        CHECK(madvise(at, bytes, MADV_DONTFORK) == 0 && madvise(at, bytes, MADV_DOFORK) == 0);
        if (from >= STATIC && chance(w, 20) == 0) {
            mlock2(at, PAGE, chance(w, 2) ? MLOCK_ONFAULT : 0);
            munlock(at, PAGE);
            munlockall();
        }
        break;
    default:
        /* Whether huge pages are to be had is the machine's to say. */
        if (madvise(at, bytes, KEEP[chance(w, sizeof KEEP / sizeof *KEEP)]) != 0)
            CHECK(errno == EINVAL || errno == EAGAIN || errno == EBUSY || errno == ENOMEM);
    }
    check_page(w, from + chance(w, count));
}

static void ends(void *x)
{
    free(x);
}

static void *waits_for_its_end(void *scratch)
{
    struct scratch *s = scratch;
    char *kept = malloc(3000), got[1];
    fill(kept, 3000, 5);
    pthread_cleanup_push(ends, kept);
    pthread_barrier_wait(&s->barrier);
    struct iovec whole = {kept, 3000};
    /* Each of these is where it may be cancelled. */
    for (;;) {
        if (s->words[2] == 0)
            (void)!read(s->pipe[0], got, 1);
        else if (s->words[2] == 1)
            (void)!vmsplice(s->pipe[1], &whole, 1, 0);
        else
            close(dup(s->pipe[0]));
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void *counts(void *scratch)
{
    struct scratch *s = scratch;
    pthread_barrier_wait(&s->barrier);
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&s->mutex);
        s->counter++;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_rwlock_rdlock(&s->shared);
        pthread_rwlock_unlock(&s->shared);
    }
    sem_post(&s->posted);
    while (__atomic_load_n(&s->words[0], __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &s->words[0], s->words[1], 0, NULL, NULL, 0);
    return scratch;
}

static void *ends_at_once(void *answer)
{
    return answer;
}

/* Threads, with stacks in paged memory or not, and what they wait for in paged memory. */
static void threads_meet(struct walker *w)
{
    struct scratch *s = w->scratch;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    int own = chance(w, 3);
    if (own)
        CHECK(pthread_attr_setstack(&attributes, w->stack, STACK) == 0);
    CHECK(pthread_barrier_init(&s->barrier, NULL, 2) == 0);
    pthread_t thread;
    void *answer;
    if (chance(w, 3) == 0) {
        for (int i = 0; i < 50; i++) {
            CHECK(pthread_create(&thread, &attributes, ends_at_once, w) == 0);
            CHECK(pthread_join(thread, &answer) == 0 && answer == w);
        }
    } else if (chance(w, 3) == 0) {
        CHECK(pipe(s->pipe) == 0);
        s->words[2] = chance(w, 3);
        CHECK(pthread_create(&thread, &attributes, waits_for_its_end, s) == 0);
        pthread_barrier_wait(&s->barrier);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
        close(s->pipe[0]);
        close(s->pipe[1]);
    } else {
        pthread_mutex_init(&s->mutex, NULL);
        pthread_cond_init(&s->changed, NULL);
        pthread_rwlock_init(&s->shared, NULL);
        sem_init(&s->posted, chance(w, 2), 0);
        s->counter = 0;
        s->words[0] = 0;
        s->words[1] = chance(w, 2) ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
        CHECK(pthread_create(&thread, &attributes, counts, s) == 0);
        pthread_barrier_wait(&s->barrier);
        pthread_mutex_lock(&s->mutex);
        while (s->counter < 20)
            pthread_cond_wait(&s->changed, &s->mutex);
        pthread_mutex_unlock(&s->mutex);
        pthread_rwlock_wrlock(&s->shared);
        pthread_rwlock_unlock(&s->shared);
        CHECK(AGAIN(sem_wait(&s->posted)) == 0);
        for (int i = 0; i < 10; i++)
            check_page(w, chance(w, PAGES));
        __atomic_store_n(&s->words[0], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &s->words[0], s->words[1] == FUTEX_WAIT ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == s);
        pthread_mutex_destroy(&s->mutex);
        pthread_cond_destroy(&s->changed);
        pthread_rwlock_destroy(&s->shared);
        sem_destroy(&s->posted);
    }
    pthread_barrier_destroy(&s->barrier);
    pthread_attr_destroy(&attributes);
}

static void step(struct walker *w);
static void begin(struct walker *w);

/* A child that checks everything, and goes on for a while. */
static void forks(struct walker *w)
{
    if (w->depth >= 3)
        return;
    int how = chance(w, 6);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        w->depth++;
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
            struct rlimit few = {60, 60};
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
        begin(w);
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

static void executes(struct walker *w)
{
    int status;
    pid_t child;
    char **words = (char **)w->scratch->text, *text = w->scratch->text + PAGE;
    strcpy(text, "/bin/sh");
    strcpy(text + 16, "-c");
    strcpy(text + 32, "exit 3");
    words[0] = text;
    words[1] = text + 16;
    words[2] = text + 32;
    words[3] = NULL;
    switch (chance(w, 4)) {
    case 0:
        child = vfork();
        if (child == 0) {
            execv(words[0], words);
            _exit(1);
        }
        break;
    case 1:
        CHECK(posix_spawn(&child, words[0], NULL, NULL, words, environ) == 0);
        break;
    case 2:
        child = fork();
        if (child == 0) {
            execv(words[0], words);
            _exit(1);
        }
        break;
    default:
        status = system(text + 32);
        CHECK(WEXITSTATUS(status) == 3);
        return;
    }
    CHECK(child > 0 && AGAIN(waitpid(child, &status, 0)) == child && status == 3 << 8);
}

/* Another thread of control on a stack in paged memory. */
static ucontext_t contexts[THREADS][2];
static void elsewhere(void)
{
    struct walker *w = walking;
    for (int i = 0; i < 3; i++) {
        check_page(w, chance(w, PAGES));
        swapcontext(&contexts[w->index][1], &contexts[w->index][0]);
    }
    w->is_elsewhere = 1;
    if (chance(w, 8) == 0)
        forks(w);
    w->is_elsewhere = 0;
}

static void swaps(struct walker *w)
{
    if (w->is_elsewhere)
        return;
    ucontext_t *both = contexts[w->index];
    CHECK(getcontext(&both[1]) == 0);
    both[1].uc_stack.ss_sp = w->other_stack;
    both[1].uc_stack.ss_size = STACK;
    both[1].uc_link = &both[0];
    makecontext(&both[1], elsewhere, 0);
    for (int i = 0; i < 4; i++) {
        CHECK(swapcontext(&both[0], &both[1]) == 0);
        check_page(w, chance(w, PAGES));
    }
}

static void on_jump(int signal)
{
    (void)signal;
    siglongjmp(walking->scratch->jump, 1);
}

static void jumps(struct walker *w)
{
    if (sigsetjmp(w->scratch->jump, 1) == 0) {
        raise(SIGUSR1);
        CHECK(0);
    }
    check_page(w, chance(w, PAGES));
}

/* Comes at any time, on a stack in paged memory. */
static void on_alarm(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    (void)context;
    int kept = errno;
    size_t at = atomic_fetch_add(&handled, 1) * 37 % (PAGES - 1) * PAGE;
    CHECK(differing(handlers + at, PAGE, at) == 0);
    errno = kept;
}

static void step(struct walker *w)
{
    size_t page = chance(w, PAGES - 8);
    int kind = chance(w, 24);
    if (kind < 15 && !(kinds >> kind & 1))
        kind = 20;
    switch (kind) {
    case 0:
        through_pipe(w);
        break;
    case 1:
        through_file(w);
        break;
    case 2:
        through_socket(w);
        break;
    case 3:
        by_process(w);
        break;
    case 4:
        by_ring(w);
        break;
    case 5:
        by_aio(w);
        break;
    case 6:
        small_calls(w);
        break;
    case 7:
        advises(w);
        break;
    case 8:
        threads_meet(w);
        break;
    case 9:
        if (chance(w, 12) == 0)
            forks(w);
        break;
    case 10:
        if (chance(w, 12) == 0)
            executes(w);
        break;
    case 11:
        swaps(w);
        break;
    case 12:
        jumps(w);
        break;
    case 13:
        if (chance(w, 20) == 0) {
            char *old = moving[w->index], *new = aligned_alloc(PAGE, (PAGES - STATIC + chance(w, 100)) * PAGE);
            CHECK(new != NULL);
            memcpy(new, old, (PAGES - STATIC) * PAGE);
            free(old);
            moving[w->index] = new;
        }
        break;
    case 14:
        if (chance(w, 20) == 0)
            check_all(w);
        break;
    default:
        for (size_t i = page; i < page + 8; i++) {
            check_page(w, i);
            if (chance(w, 2)) {
                w->series[i] = 1 + chance(w, 1 << 30);
                fill(place(w, i), PAGE, w->series[i]);
            }
        }
    }
}

/* What a process or thread has for itself. */
static void begin(struct walker *w)
{
    w->file = open(".", O_TMPFILE | O_RDWR, 0600);
    if (w->file < 0) {
        char other[] = "/var/tmp/call-walk-XXXXXX";
        w->file = mkstemp(other);
        unlink(other);
    }
    CHECK(w->file >= 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", w->file);
    w->direct = open(path, O_RDWR | O_DIRECT);
    CHECK(w->direct >= 0);
}

static void *walk(void *argument)
{
    struct walker *w = argument;
    walking = w;
    begin(w);
    stack_t other = {.ss_sp = malloc(STACK), .ss_size = STACK};
    CHECK(other.ss_sp != NULL && sigaltstack(&other, NULL) == 0);
    for (size_t call = 0; call < calls; call++)
        step(w);
    check_all(w);
    close(w->file);
    close(w->direct);
    other.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&other, NULL) == 0);
    free(other.ss_sp);
    return NULL;
}

int main(int argc, char **argv)
{
    calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 400;
    threads = argc > 2 ? strtoull(argv[2], NULL, 10) : 2;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)getpid();
    if (argc > 4)
        kinds = strtoull(argv[4], NULL, 0);
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct walker *walkers = outside(THREADS * sizeof *walkers);
    handlers = malloc(PAGES * PAGE);
    CHECK(handlers != NULL && threads <= THREADS);
    for (size_t at = 0; at < PAGES * PAGE; at += PAGE)
        fill(handlers + at, PAGE, at);
    struct sigaction jump = {.sa_handler = on_jump}, alarm = {.sa_sigaction = on_alarm, .sa_flags = SA_ONSTACK | SA_RESTART | SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &jump, NULL) == 0 && sigaction(SIGALRM, &alarm, NULL) == 0);
    pthread_t started[THREADS];
    for (size_t i = 0; i < threads; i++) {
        walkers[i] = (struct walker){.state = seed + i, .series = outside(PAGES * sizeof(uint64_t)), .index = i, .scratch = malloc(sizeof(struct scratch)), .stack = aligned_alloc(PAGE, STACK), .other_stack = aligned_alloc(PAGE, STACK)};
        moving[i] = aligned_alloc(PAGE, (PAGES - STATIC) * PAGE);
        CHECK(moving[i] && walkers[i].scratch && walkers[i].stack && walkers[i].other_stack);
        memset(moving[i], 0, (PAGES - STATIC) * PAGE);
    }
    if (kinds >> 15 & 1) {
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

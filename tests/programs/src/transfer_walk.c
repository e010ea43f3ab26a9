/* Random system calls that move bytes from and to paged memory, by several threads: what each
 * page holds is checked against a model. */
#define _GNU_SOURCE
#include "call_walk.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

/* Pages that one call moves at most: what a pipe holds. */
#define MOST 16
/* Pieces of a transfer. */
#define PIECES 8

struct scratch {
    struct iovec from[PIECES], into[PIECES];
    struct msghdr message;
    char control[CMSG_SPACE(sizeof(int))];
    struct pollfd polled[2];
    struct epoll_event events[2];
    fd_set read;
    struct timespec times[2];
    int pair[2], pipe[2];
    /* A file, and the same for direct I/O. */
    int file, direct;
    char text[2 * PAGE];
    char mincore[PAGES];
};

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

/* Moves whole pages by `readv` or `writev`, in pieces. */
static void all_by(struct walker *w, ssize_t (*call)(int, const struct iovec *, int), struct iovec *pieces, int fd, size_t page, size_t count)
{
    int n = cut(w, pieces, place(w, page), count * PAGE);
    for (size_t left = count * PAGE; left > 0;) {
        ssize_t done = AGAIN(call(fd, pieces, n));
        CHECK(done > 0);
        left -= done;
        advance(&pieces, &n, done);
    }
}

static void write_all(struct walker *w, int fd, size_t from, size_t count)
{
    all_by(w, writev, w->scratch->from, fd, from, count);
}

static void read_all(struct walker *w, int fd, size_t into, size_t count)
{
    all_by(w, readv, w->scratch->into, fd, into, count);
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
    int fd = chance(w, 2) ? w->scratch->file : w->scratch->direct;
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
    memcpy(CMSG_DATA(head), &w->scratch->file, sizeof(int));
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

/* A ring of the kernel's. */
struct ring {
    int fd;
    char *queue, *ended;
    struct io_uring_sqe *entries;
    size_t queue_bytes, ended_bytes;
    struct io_uring_params params;
};

static int open_ring(struct ring *ring)
{
    memset(ring, 0, sizeof *ring);
    struct io_uring_params *params = &ring->params;
    ring->fd = syscall(SYS_io_uring_setup, 4, params);
    if (ring->fd < 0)
        return 0;
    ring->queue_bytes = params->sq_off.array + 4 * sizeof(unsigned);
    ring->ended_bytes = params->cq_off.cqes + 8 * sizeof(struct io_uring_cqe);
    ring->queue = mmap(NULL, ring->queue_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    ring->entries = mmap(NULL, 4 * sizeof *ring->entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQES);
    ring->ended = mmap(NULL, ring->ended_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_CQ_RING);
    CHECK(ring->queue != MAP_FAILED && ring->entries != MAP_FAILED && ring->ended != MAP_FAILED);
    return 1;
}

static void close_ring(struct ring *ring)
{
    CHECK(close(ring->fd) == 0);
    munmap(ring->queue, ring->queue_bytes);
    munmap(ring->entries, 4 * sizeof *ring->entries);
    munmap(ring->ended, ring->ended_bytes);
}

/* One operation, to its end: what came of it. */
static int operate(struct ring *ring, struct io_uring_sqe entry)
{
    struct io_sqring_offsets *in = &ring->params.sq_off;
    struct io_cqring_offsets *out = &ring->params.cq_off;
    unsigned *tail = (unsigned *)(ring->queue + in->tail), *array = (unsigned *)(ring->queue + in->array);
    ring->entries[0] = entry;
    array[*tail & 3] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) == 1);
    unsigned *head = (unsigned *)(ring->ended + out->head), *last = (unsigned *)(ring->ended + out->tail);
    while (__atomic_load_n(last, __ATOMIC_ACQUIRE) == *head)
        AGAIN(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
    int result = ((struct io_uring_cqe *)(ring->ended + out->cqes))[*head & 7].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

/* Where pages are copied, what the kernel writes to those that it keeps may be lost
 * (docs/design/pager.md). */
static int pages_stay(void)
{
    const char *mechanism = getenv("TERAPAGE_MECHANISM");
    struct utsname kernel;
    int version, part;
    CHECK(uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &version, &part) == 2);
    return version * 100 + part >= 608 && !(mechanism && strcmp(mechanism, "copy") == 0);
}

static void by_ring(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    struct ring ring;
    if (!open_ring(&ring))
        return;
    struct scratch *s = w->scratch;
    int fd = chance(w, 2) || !pages_stay() ? s->file : s->direct, registered = chance(w, 3) == 0 && pages_stay();
    if (registered) {
        s->from[0] = (struct iovec){place(w, from), bytes};
        s->from[1] = (struct iovec){place(w, into), bytes};
        registered = syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, s->from, 2) == 0;
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
            s->into[0] = (struct iovec){at, bytes};
            entry.addr = (uintptr_t)s->into;
            entry.len = 1;
        }
        int result;
        /* A signal comes, or the kernel's thread ends: then it is done again. */
        do
            result = operate(&ring, entry);
        while (result == -ECANCELED || result == -EINTR);
        if (result != (int)bytes)
            fprintf(stderr, "ring: %d of %zu, direct %d registered %d async %d\n", result, bytes, fd == s->direct, registered, async);
        CHECK(result == (int)bytes);
    }
    close_ring(&ring);
    is_copied(w, from, into, count);
}

static void by_aio(struct walker *w)
{
    size_t from, into, count = two(w, &from, &into), bytes = count * PAGE;
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 4, &context) < 0)
        return;
    int fd = chance(w, 2) || !pages_stay() ? w->scratch->file : w->scratch->direct;
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
        snprintf(name, sizeof name, "/proc/self/fd/%d", w->scratch->file);
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
        w->scratch->polled[0] = (struct pollfd){w->scratch->file, POLLIN, 0};
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
    refill(w, page);
    refill(w, page + 1);
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
        for (size_t page = from; page < from + count; page++)
            refill(w, page);
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

/* What a process or thread has for itself. */
static void opens(struct walker *w)
{
    w->scratch->file = open(".", O_TMPFILE | O_RDWR, 0600);
    if (w->scratch->file < 0) {
        char other[] = "/var/tmp/transfer-walk-XXXXXX";
        w->scratch->file = mkstemp(other);
        unlink(other);
    }
    CHECK(w->scratch->file >= 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", w->scratch->file);
    w->scratch->direct = open(path, O_RDWR | O_DIRECT);
    /* A root directory in memory takes no direct I/O. */
    if (w->scratch->direct < 0)
        w->scratch->direct = open(path, O_RDWR);
    CHECK(w->scratch->direct >= 0);
}

static void closes(struct walker *w)
{
    close(w->scratch->file);
    close(w->scratch->direct);
}

int main(int argc, char **argv)
{
    static const struct program transfers = {
        .scratch_bytes = sizeof(struct scratch),
        .begin = opens,
        .end = closes,
        .kinds = {{through_pipe, 1}, {through_file, 1}, {through_socket, 1}, {by_process, 1}, {by_ring, 1}, {by_aio, 1}, {small_calls, 1}, {advises, 1}, {forks, 12}, {moves, 20}, {check_all, 20}},
    };
    return walk_all(&transfers, argc, argv);
}

/* Makes system calls whose memory is out at random, and compares each result with that of the same
 * call on memory that is never paged. Usage: guarded MIB ROUNDS SEED. The data have MIB MiB; other
 * threads touch them all the time, so that pages leave. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#define ROOM (256 << 10)
#define THREADS 3
extern char **environ;
static char *data;
static size_t bytes;
static volatile int over;
static long rounds;

struct thread {
    int number, pipe[2], pair[2], dgram[2], udp, file, epoll, paged;
    uint64_t seed;
    char *zone;
    size_t zone_bytes, used;
    struct sockaddr_in udp_at;
    char name[128];
    uint64_t sum;
    long answer;
    int error;
};
static char still[THREADS][ROOM] __attribute__((aligned(4096)));

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed;
}

/* Memory for an argument: at a random place of the thread's zone, or still. */
static void *at(struct thread *t, size_t len) {
    if (!t->paged) {
        char *p = still[t->number] + t->used;
        t->used += (len + 63) & ~63ul;
        if (t->used > ROOM)
            abort();
        return p;
    }
    /* Distinct parts of the zone, so that arguments do not overlap. */
    size_t part = t->zone_bytes / 32, index = t->used++;
    if (index >= 32 || len + 64 > part)
        abort();
    return t->zone + index * part + (next(&t->seed) % (part - len) & ~15ul);
}

static void *copy(struct thread *t, const void *from, size_t len) {
    void *p = at(t, len);
    memcpy(p, from, len);
    return p;
}

static char *text(struct thread *t, const char *from) {
    return copy(t, from, strlen(from) + 1);
}

static void note(struct thread *t, long answer) {
    t->error = answer < 0 ? errno : 0;
    t->answer = t->answer * 31 + answer * 7 + t->error;
}

static void see(struct thread *t, const void *p, size_t len) {
    const unsigned char *c = p;
    for (size_t i = 0; i < len; i++)
        t->sum = t->sum * 1099511628211u + c[i];
}

static char *pattern(struct thread *t, size_t len, unsigned salt) {
    char *p = at(t, len);
    for (size_t i = 0; i < len; i++)
        p[i] = (char)(i * 7 + salt);
    return p;
}

#define CALL(name) static void name(struct thread *t, __attribute__((unused)) unsigned n)

CALL(files) {
    size_t len = 1 + n % 50000;
    note(t, pwrite(t->file, pattern(t, len, n), len, n % 777));
    char *in = at(t, len);
    memset(in, 0, len);
    note(t, pread(t->file, in, len, n % 777));
    see(t, in, len);
}
CALL(raw_files) {
    size_t len = 1 + n % 9000;
    note(t, syscall(SYS_pwrite64, t->file, pattern(t, len, n), len, 5));
    char *in = at(t, len);
    note(t, syscall(SYS_pread64, t->file, in, len, 5));
    see(t, in, len);
}
CALL(pipes) {
    size_t len = 1 + n % 4000;
    note(t, write(t->pipe[1], pattern(t, len, n), len));
    char *in = at(t, len);
    note(t, read(t->pipe[0], in, len));
    see(t, in, len);
}
CALL(vectors) {
    int count = 1 + n % 6;
    struct iovec *out = at(t, sizeof *out * count), *in = at(t, sizeof *in * count);
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        size_t len = 1 + (n >> i) % 3000;
        out[i] = (struct iovec){pattern(t, len, i), len};
        in[i] = (struct iovec){at(t, len), len};
        sum += len;
    }
    note(t, pwritev(t->file, out, count, 9));
    note(t, preadv(t->file, in, count, 9));
    note(t, syscall(SYS_preadv2, t->file, in, count, 9, 0, 0));
    for (int i = 0; i < count; i++)
        see(t, in[i].iov_base, in[i].iov_len);
    struct iovec stack[2] = {{pattern(t, 100, n), 100}, {pattern(t, 200, n), 200}};
    note(t, writev(t->pipe[1], stack, 2));
    char *got = at(t, 300);
    note(t, read(t->pipe[0], got, 300));
    see(t, got, 300);
    /* Only pipes may be spliced: a file must stay as it is. EBADF, or ENOSYS once the program has
     * been adopted, perhaps since the call before this one. */
    note(t, vmsplice(t->file, out, count, 0) < 0);
    char *after = at(t, 300);
    /* The file may be shorter. */
    long len = pread(t->file, after, 300, 0);
    note(t, len);
    see(t, after, len > 0 ? len : 0);
}
CALL(messages) {
    size_t len = 1 + n % 20000;
    struct iovec *io = at(t, sizeof *io * 2);
    io[0] = (struct iovec){pattern(t, len, n), len};
    io[1] = (struct iovec){pattern(t, 33, n), 33};
    struct msghdr *m = at(t, sizeof *m);
    memset(m, 0, sizeof *m);
    m->msg_iov = io, m->msg_iovlen = 2;
    char *control = at(t, CMSG_SPACE(sizeof(int)));
    memset(control, 0, CMSG_SPACE(sizeof(int)));
    m->msg_control = control, m->msg_controllen = CMSG_SPACE(sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &t->file, sizeof(int));
    note(t, sendmsg(t->dgram[0], m, 0));
    struct iovec *in = at(t, sizeof *in * 2);
    in[0] = (struct iovec){at(t, 10), 10};
    in[1] = (struct iovec){at(t, len + 40), len + 40};
    struct msghdr *r = at(t, sizeof *r);
    memset(r, 0, sizeof *r);
    r->msg_iov = in, r->msg_iovlen = 2;
    r->msg_control = at(t, 64), r->msg_controllen = 64;
    note(t, recvmsg(t->dgram[1], r, MSG_CMSG_CLOEXEC));
    see(t, in[0].iov_base, 10);
    see(t, in[1].iov_base, len + 23);
    c = CMSG_FIRSTHDR(r);
    int fd = -1;
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    note(t, close(fd));
    struct mmsghdr *mm = at(t, sizeof *mm);
    memset(mm, 0, sizeof *mm);
    mm->msg_hdr = *m, mm->msg_hdr.msg_control = 0, mm->msg_hdr.msg_controllen = 0;
    note(t, sendmmsg(t->dgram[0], mm, 1, 0));
    note(t, mm->msg_len);
    mm->msg_hdr.msg_iov = in;
    note(t, recvmmsg(t->dgram[1], mm, 1, 0, copy(t, &(struct timespec){1, 0}, 16)));
    note(t, mm->msg_len);
}
CALL(datagrams) {
    size_t len = 1 + n % 8000;
    note(t, sendto(t->udp, pattern(t, len, n), len, 0, copy(t, &t->udp_at, sizeof t->udp_at), sizeof t->udp_at));
    struct sockaddr_in *from = at(t, sizeof *from);
    socklen_t *size = copy(t, &(socklen_t){sizeof *from}, sizeof *size);
    char *in = at(t, len);
    note(t, recvfrom(t->udp, in, len, 0, (void *)from, size));
    see(t, in, len);
    note(t, *size);
    note(t, from->sin_port == t->udp_at.sin_port);
    *size = sizeof *from;
    note(t, getsockname(t->udp, (void *)from, size));
    int *value = at(t, sizeof *value);
    *size = sizeof *value;
    note(t, getsockopt(t->udp, SOL_SOCKET, SO_TYPE, value, size));
    note(t, *value);
    note(t, setsockopt(t->udp, SOL_SOCKET, SO_BROADCAST, copy(t, &(int){1}, 4), 4));
}
CALL(paths) {
    char *path = text(t, t->name), other[160];
    snprintf(other, sizeof other, "%s.link", t->name);
    char *link = text(t, other);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    note(t, fd >= 0);
    struct stat *s = at(t, sizeof *s);
    note(t, stat(path, s)), note(t, s->st_size);
    note(t, fstat(fd, s)), note(t, lstat(path, s));
    note(t, access(path, R_OK | W_OK)), note(t, symlink(path, link));
    char *where = at(t, 200);
    long len = readlink(link, where, 200);
    note(t, len);
    see(t, where, len > 0 ? len : 0);
    note(t, unlink(link));
    note(t, utimensat(AT_FDCWD, path, copy(t, (struct timespec[2]){{5, 6}, {7, 8}}, 32), 0));
    note(t, stat(path, s)), note(t, s->st_mtim.tv_sec * 10 + s->st_mtim.tv_nsec);
    struct statx *x = at(t, sizeof *x);
    note(t, statx(AT_FDCWD, path, 0, STATX_SIZE, x)), note(t, x->stx_size);
    struct statfs *f = at(t, sizeof *f);
    note(t, statfs(path, f)), note(t, f->f_type);
    struct flock *lock = at(t, sizeof *lock);
    memset(lock, 0, sizeof *lock);
    lock->l_type = F_WRLCK;
    note(t, fcntl(fd, F_GETLK, lock)), note(t, lock->l_type);
    note(t, rename(path, link)), note(t, unlink(link)), note(t, close(fd));
    note(t, open(text(t, "/no/such/file"), O_RDONLY));
}
CALL(directories) {
    int fd = open("/etc", O_RDONLY | O_DIRECTORY);
    char *in = at(t, 4096);
    long all = 0, got;
    /* To its end: with a signal or a tracer's stop pending, the kernel gives fewer entries. */
    while ((got = syscall(SYS_getdents64, fd, in, 4096)) > 0) {
        all += got;
        for (long i = 0; i < got; i += ((struct dirent *)(in + i))->d_reclen)
            see(t, ((struct dirent *)(in + i))->d_name, strlen(((struct dirent *)(in + i))->d_name));
    }
    note(t, got), note(t, all);
    close(fd);
    char *here = at(t, 4096);
    note(t, syscall(SYS_getcwd, here, 4096));
    see(t, here, strlen(here));
}
CALL(polls) {
    struct pollfd *p = at(t, sizeof *p * 3);
    p[0] = (struct pollfd){t->pipe[1], POLLOUT, 0}, p[1] = (struct pollfd){t->pipe[0], POLLIN, 0};
    p[2] = (struct pollfd){-1, POLLIN, 0};
    note(t, poll(p, 3, 10)), note(t, p[0].revents * 100 + p[1].revents);
    sigset_t set;
    sigfillset(&set);
    note(t, ppoll(p + 1, 1, copy(t, &(struct timespec){0, 1000}, 16), copy(t, &set, sizeof set)));
    fd_set *r = at(t, sizeof *r), *w = at(t, sizeof *w);
    FD_ZERO(r);
    FD_ZERO(w);
    FD_SET(t->pipe[0], r);
    FD_SET(t->pipe[1], w);
    note(t, select(t->pipe[0] > t->pipe[1] ? t->pipe[0] + 1 : t->pipe[1] + 1, r, w, 0,
                   copy(t, &(struct timeval){1, 0}, 16)));
    note(t, FD_ISSET(t->pipe[0], r) * 2 + FD_ISSET(t->pipe[1], w));
    FD_SET(t->pipe[1], w);
    note(t, pselect(t->pipe[1] + 1, 0, w, 0, copy(t, &(struct timespec){1, 0}, 16), copy(t, &set, sizeof set)));
    struct epoll_event *e = copy(t, &(struct epoll_event){EPOLLOUT, {.u64 = n}}, sizeof *e);
    note(t, epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->pipe[1], e));
    struct epoll_event *got = at(t, sizeof *got * 4);
    note(t, epoll_wait(t->epoll, got, 4, 100)), note(t, got->data.u64);
    note(t, epoll_pwait(t->epoll, got, 4, 100, copy(t, &set, sizeof set)));
    note(t, epoll_ctl(t->epoll, EPOLL_CTL_DEL, t->pipe[1], e));
}
CALL(times_of) {
    note(t, syscall(SYS_clock_gettime, CLOCK_REALTIME, at(t, 16)));
    note(t, syscall(SYS_clock_getres, CLOCK_MONOTONIC, at(t, 16)));
    note(t, nanosleep(copy(t, &(struct timespec){0, 1000}, 16), at(t, 16)));
    note(t, clock_nanosleep(CLOCK_MONOTONIC, 0, copy(t, &(struct timespec){0, 500}, 16), 0));
    note(t, syscall(SYS_gettimeofday, at(t, 16), 0));
    note(t, getrusage(RUSAGE_SELF, at(t, sizeof(struct rusage))));
    note(t, times(at(t, sizeof(struct tms))) > 0);
    struct rlimit *limit = at(t, sizeof *limit);
    note(t, getrlimit(RLIMIT_NOFILE, limit)), note(t, limit->rlim_cur);
    note(t, setrlimit(RLIMIT_NOFILE, limit));
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec *timer = copy(t, &(struct itimerspec){{0, 0}, {100, 0}}, sizeof *timer);
    note(t, timerfd_settime(fd, 0, timer, at(t, sizeof *timer)));
    note(t, timerfd_gettime(fd, timer)), note(t, timer->it_value.tv_sec >= 99);
    close(fd);
}
CALL(about) {
    struct utsname *name = at(t, sizeof *name);
    note(t, uname(name));
    see(t, name->sysname, 8);
    note(t, sysinfo(at(t, sizeof(struct sysinfo))));
    cpu_set_t *cpus = at(t, sizeof *cpus);
    note(t, syscall(SYS_sched_getaffinity, 0, sizeof *cpus, cpus));
    note(t, getgroups(64, at(t, 64 * 4)));
    uid_t *ids = at(t, 12);
    note(t, syscall(SYS_getresuid, ids, ids + 1, ids + 2)), note(t, ids[0] + ids[1] + ids[2]);
    note(t, syscall(SYS_getrandom, at(t, 100), 100, 0));
    int *waiting = at(t, 4);
    note(t, ioctl(t->pipe[0], FIONREAD, waiting)), note(t, *waiting);
    note(t, ioctl(t->file, TIOCGWINSZ, at(t, 8)));
    char *own = at(t, 16);
    note(t, syscall(SYS_prctl, 16 /* PR_GET_NAME */, own, 0, 0, 0));
    int *ends = at(t, 8);
    note(t, pipe2(ends, O_CLOEXEC));
    close(ends[0]), close(ends[1]);
    uint64_t *count = copy(t, &(uint64_t){5}, 8);
    int fd = eventfd(0, 0);
    note(t, write(fd, count, 8)), *count = 0, note(t, read(fd, count, 8)), note(t, *count);
    close(fd);
    fd = syscall(SYS_memfd_create, text(t, "x"), 1);
    note(t, fd >= 0), note(t, close(fd));
}
CALL(signals) {
    sigset_t *set = at(t, sizeof *set), *old = at(t, sizeof *old);
    sigfillset(set);
    note(t, pthread_sigmask(SIG_SETMASK, set, old));
    see(t, old, 8);
    /* A call on paged memory while all signals are blocked. */
    files(t, n % 100);
    note(t, syscall(SYS_rt_sigprocmask, SIG_SETMASK, old, set, 8));
    struct timespec *soon = copy(t, &(struct timespec){0, 1000}, 16);
    sigset_t *none = at(t, sizeof *none);
    sigemptyset(none), sigaddset(none, SIGRTMIN + 3);
    siginfo_t *info = at(t, sizeof *info);
    int signal;
    do /* A tracer's stop ends the wait, too. */
        signal = sigtimedwait(none, info, soon);
    while (signal < 0 && errno == EINTR);
    note(t, signal);
    struct sigaction *action = at(t, sizeof *action), *before = at(t, sizeof *before);
    memset(action, 0, sizeof *action);
    action->sa_handler = SIG_IGN;
    sigfillset(&action->sa_mask);
    note(t, sigaction(SIGRTMIN + 4, action, before)), note(t, before->sa_handler == SIG_IGN || !before->sa_handler);
    note(t, sigaction(SIGSYS, 0, before)), note(t, before->sa_handler == SIG_DFL);
    note(t, sigaltstack(0, at(t, sizeof(stack_t))));
}
CALL(futexes) {
    int *word = copy(t, &(int){(int)n}, 4);
    note(t, syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, n + 1, 0, 0, 0));
    note(t, syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, n, copy(t, &(struct timespec){0, 1000}, 16), 0, 0));
    note(t, syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0));
    note(t, syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1, at(t, 4), n));
    pthread_mutex_t *mutex = copy(t, &(pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER, sizeof *mutex);
    pthread_cond_t *cond = copy(t, &(pthread_cond_t)PTHREAD_COND_INITIALIZER, sizeof *cond);
    struct timespec *until = at(t, sizeof *until);
    clock_gettime(CLOCK_REALTIME, until);
    pthread_mutex_lock(mutex);
    note(t, pthread_cond_timedwait(cond, mutex, until));
    pthread_mutex_unlock(mutex);
}
CALL(offsets) {
    off_t *from = copy(t, &(off_t){n % 100}, 8), *to = copy(t, &(off_t){8000}, 8);
    note(t, pwrite(t->file, pattern(t, 3000, n), 3000, 0));
    note(t, copy_file_range(t->file, from, t->file, to, 500, 0)), note(t, *from + *to * 3);
    note(t, sendfile(t->pipe[1], t->file, from, 100)), note(t, *from);
    char *in = at(t, 100);
    note(t, read(t->pipe[0], in, 100));
    see(t, in, 100);
    note(t, splice(t->file, from, t->pipe[1], 0, 50, 0)), note(t, *from);
    note(t, read(t->pipe[0], in, 100));
    struct iovec *here = at(t, sizeof *here), *there = at(t, sizeof *there);
    *here = (struct iovec){in, 100}, *there = (struct iovec){pattern(t, 100, n), 100};
    note(t, process_vm_readv(getpid(), here, 1, there, 1, 0));
    see(t, in, 100);
}
/* Bad memory gives EFAULT, before and behind which nothing happens. */
CALL(bad) {
    char *volatile nowhere = (char *)8;
    volatile int none = -1;
    note(t, pwrite(t->file, "some bytes that are there", 25, 0));
    note(t, pread(t->file, nowhere, 10, 0)), note(t, pwrite(t->file, nowhere - 4096, 10, 0));
    note(t, stat(nowhere, at(t, sizeof(struct stat)))), note(t, stat("/", (struct stat *)nowhere));
    note(t, writev(t->pipe[1], (struct iovec *)nowhere, 1));
    struct iovec *io = at(t, sizeof *io);
    *io = (struct iovec){nowhere, 10};
    note(t, writev(t->pipe[1], io, 1)), note(t, preadv(t->file, io, none, 0));
    char *closed = t->zone + t->zone_bytes;
    note(t, pwrite(t->file, closed, 100, 0)), note(t, stat(closed, at(t, 200)));
    note(t, syscall(SYS_rt_sigprocmask, 99, at(t, 8), 0, 8));
    note(t, syscall(SYS_rt_sigaction, 10, nowhere, 0, 8));
    (void)n;
}
CALL(children) {
    if (n % 40)
        return;
    char **arguments = at(t, sizeof *arguments * 4);
    arguments[0] = text(t, "sh"), arguments[1] = text(t, "-c"), arguments[2] = text(t, "exit 7"), arguments[3] = 0;
    char *path = text(t, "/bin/sh");
    pid_t pid = 0;
    int *status = at(t, sizeof *status);
    note(t, posix_spawn(&pid, path, 0, 0, arguments, environ));
    note(t, wait4(pid, status, 0, at(t, sizeof(struct rusage))) == pid), note(t, *status);
    pid = fork();
    if (!pid) {
        /* The child has a pager of its own, and makes calls, too. */
        t->answer = t->sum = 0;
        files(t, 12345), pipes(t, 77);
        uint64_t sum = t->sum;
        execv(path, arguments);
        _exit(sum != 0);
    }
    siginfo_t *info = at(t, sizeof *info);
    note(t, waitid(P_PID, pid, info, WEXITED)), note(t, info->si_status);
}

static void (*const calls[])(struct thread *, unsigned) = {files,   raw_files, pipes,   vectors, messages, datagrams,
                                                           paths,   directories, polls, times_of, about,   signals,
                                                           futexes, offsets,   bad,     children};
static const char *const names[] = {"files",   "raw_files", "pipes",   "vectors", "messages", "datagrams",
                                    "paths",   "directories", "polls", "times",   "about",    "signals",
                                    "futexes", "offsets",   "bad",     "children"};
#define KINDS (sizeof calls / sizeof *calls)
static long differences, done;

static void prepare(struct thread *t, int number) {
    t->number = number;
    t->zone_bytes = (bytes / THREADS & ~4095ul) - 4096;
    t->zone = data + number * (bytes / THREADS & ~4095ul);
    mprotect(t->zone + t->zone_bytes, 4096, PROT_NONE);
    snprintf(t->name, sizeof t->name, "/tmp/guarded.%d.%d", getpid(), number);
    t->file = open(t->name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    unlink(t->name);
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    t->udp_at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof t->udp_at;
    if (t->file < 0 || pipe2(t->pipe, O_CLOEXEC) || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, t->dgram) ||
        bind(t->udp, (void *)&t->udp_at, size) || getsockname(t->udp, (void *)&t->udp_at, &size))
        perror("prepare"), exit(2);
}

static void *work(void *argument) {
    struct thread *t = argument;
    for (long i = 0; i < rounds; i++) {
        uint64_t r = next(&t->seed);
        unsigned kind = r % KINDS, n = (unsigned)(r >> 20);
        uint64_t sums[2];
        long answers[2];
        for (t->paged = 0; t->paged < 2; t->paged++) {
            t->used = 0, t->sum = 0, t->answer = 0;
            calls[kind](t, n);
            sums[t->paged] = t->sum, answers[t->paged] = t->answer;
        }
        if (sums[0] != sums[1] || answers[0] != answers[1]) {
            if (__atomic_add_fetch(&differences, 1, __ATOMIC_RELAXED) < 20)
                fprintf(stderr, "%s(%u) differs: answers %ld %ld, bytes %lx %lx, last error %d\n", names[kind], n,
                        answers[0], answers[1], (long)sums[0], (long)sums[1], t->error);
        }
        __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Touches pages at random, so that others leave. */
static void *adversary(void *argument) {
    /* The kernel gives a signal of the process to any thread that does not block it, and the
     * handler jumps to the main thread's stack. */
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, 0);
    uint64_t seed = 88172645463325252ull + (long)argument;
    while (!over) {
        size_t zone = bytes / THREADS & ~4095ul, page = next(&seed) % (bytes >> 12) << 12;
        if (page % zone < zone - 4096 && page / zone < THREADS)
            (void)*(volatile char *)(data + page);
        if (seed % 64 == 0)
            sched_yield();
    }
    return 0;
}

static sigjmp_buf away;
static int jumps;
static volatile int ticks;
static void jump(int signal) {
    (void)signal;
    siglongjmp(away, 1);
}
static void tick(int signal) {
    (void)signal;
    char *p = data + 5000;
    /* A call of the handler, while its thread waits in another one. */
    if (write(-1, p, 10) == -1 && errno == EBADF)
        ticks++;
}
static void *waits(void *argument) {
    struct thread *t = argument;
    read(t->pipe[0], t->zone + 4096 * 77, 100);
    return (void *)1;
}

/* Signals, jumps and cancellation while a call waits. */
static int interrupted(struct thread *t) {
    static int failures;
    char *in = t->zone + 3 * 4096;
    /* The kernel writes the part of an answer that lies before a page without rights. */
    long *part = (long *)(t->zone + t->zone_bytes) - 1;
    signal(SIGUSR2, SIG_IGN);
    for (int i = 0; i < 20; i++) {
        *part = 0;
        usleep(10000);
        if (syscall(SYS_rt_sigaction, SIGUSR2, 0, part, 8) != -1 || errno != EFAULT || *part != (long)SIG_IGN)
            failures++, printf("a part of an answer: %ld, %s\n", *part, strerror(errno));
    }
    struct sigaction action = {.sa_handler = jump}, old;
    sigaction(SIGALRM, &action, &old);
    for (jumps = 0; jumps < 20; jumps++) {
        int i = jumps;
        struct itimerval soon = {{0, 0}, {0, 2000}};
        if (!sigsetjmp(away, 1)) {
            setitimer(ITIMER_REAL, &soon, 0);
            syscall(i % 2 ? SYS_read : SYS_readv, t->pipe[0], i % 2 ? (void *)in : &(struct iovec){in, 100}, i % 2 ? 100 : 1);
            failures++, puts("a read without bytes has ended");
        }
    }
    action.sa_handler = tick, action.sa_flags = 0;
    sigaction(SIGALRM, &action, 0);
    struct itimerval each = {{0, 1000}, {0, 1000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, 0);
    long got = read(t->pipe[0], in, 100);
    if (got != -1 || errno != EINTR)
        failures++, printf("an interrupted read: %ld, %s\n", got, strerror(errno));
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    pid_t pid = fork();
    if (!pid) {
        usleep(50000);
        write(t->pipe[1], "after some ticks", 17);
        _exit(0);
    }
    got = read(t->pipe[0], in, 100);
    setitimer(ITIMER_REAL, &none, 0);
    if (got != 17 || strcmp(in, "after some ticks"))
        failures++, printf("a restarted read: %ld, %s\n", got, strerror(errno));
    if (!ticks)
        failures++, puts("the handler never ran, or its call failed");
    while (waitpid(pid, 0, 0) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *end = 0;
        pthread_create(&thread, 0, waits, t);
        usleep(3000);
        pthread_cancel(thread);
        pthread_join(thread, &end);
        if (end != PTHREAD_CANCELED)
            failures++, puts("a thread that waits in a read was not cancelled");
    }
    return failures;
}

/* A transfer that is longer than the budget. */
static int long_transfers(struct thread *t) {
    size_t len = bytes / THREADS * (THREADS - 1) & ~4095ul, zone = bytes / THREADS & ~4095ul;
    int failures = 0;
    for (int i = 0; i < THREADS; i++)
        mprotect(data + i * zone + zone - 4096, 4096, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < len; i += 8)
        *(uint64_t *)(data + i) = i * 0x9e3779b97f4a7c15ull;
    long put = pwrite(t->file, data, len, 0);
    memset(data, 0, len);
    struct iovec io[2] = {{data, len / 3}, {data + len / 3, len}};
    long got = preadv(t->file, io, 2, 0);
    if (put != (long)len || got != (long)len)
        failures++, printf("a long transfer: wrote %ld, read %ld of %zu: %s\n", put, got, len, strerror(errno));
    for (size_t i = 0; i < len; i += 8)
        if (*(uint64_t *)(data + i) != i * 0x9e3779b97f4a7c15ull) {
            failures++, printf("wrong bytes at %zu after a long transfer\n", i);
            break;
        }
    return failures;
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    bytes = strtoul(arguments[1], 0, 10) << 20;
    rounds = strtol(arguments[2], 0, 10);
    uint64_t seed = strtoull(arguments[3], 0, 10) * 0x9e3779b97f4a7c15ull + 1;
    data = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return 2;
    memset(data, 1, bytes);
    static struct thread threads[THREADS];
    pthread_t ids[THREADS], others[2];
    for (int i = 0; i < THREADS; i++) {
        threads[i].seed = seed + i * 0x1234567;
        prepare(&threads[i], i);
    }
    for (long i = 0; i < 2; i++)
        pthread_create(&others[i], 0, adversary, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], 0, work, &threads[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], 0);
    int failures = interrupted(&threads[0]);
    over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(others[i], 0);
    failures += long_transfers(&threads[0]);
    printf("%ld rounds, %ld differences, %d failures\n", done, differences, failures);
    return differences || failures;
}

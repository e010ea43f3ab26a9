/* Cancels threads that wait in calls of many kinds, or are about to: their cleanup handlers run,
 * find the memory as it was, and what the threads have waited for is still there for the next.
 * What a call points to lies in paged memory, or on the thread's stack.
 *
 * usage: cancels MIB ROUNDS SEED [KIND]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

#include "check.h"

#define PAGE 4096
/* What a call points to fits in this many bytes. */
#define ROOM (2 * PAGE)
/* A thread that has not ended after this many looks, of a hundredth of a second, waits for ever. */
#define LOOKS 12000
static const struct timespec look = {0, 10000000}, first_look = {0, 100000}, long_time = {100000, 0};

static char *data;
static size_t bytes;
static uint64_t state;
static int pipes[2], full[2], sockets[2], full_sockets[2], listening, queue, terminal, messages = -1;
static struct sockaddr_in address;
static char fifo[64];
static sem_t *posts;
static pthread_mutex_t *mutex;
static pthread_cond_t *condition;
static pthread_t joined;
static pid_t child;

static uint64_t any(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

/* The calls. Each returns whether it got what [`happens`] has brought. */

static int is_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

static int on_wait(char *at) { return wait((int *)at) == child && is_killed(*(int *)at); }

static int on_waitpid(char *at) { return waitpid(child, (int *)at, 0) == child && is_killed(*(int *)at); }

#ifdef __GLIBC__
static int on_wait3(char *at) {
    return wait3((int *)at, 0, (struct rusage *)(at + PAGE)) == child && is_killed(*(int *)at);
}

static int on_wait4(char *at) {
    return wait4(child, (int *)at, 0, (struct rusage *)(at + PAGE)) == child && is_killed(*(int *)at);
}
#endif

static int on_waitid(char *at) {
    siginfo_t *what = (siginfo_t *)at;
    return waitid(P_PID, child, what, WEXITED) == 0 && what->si_pid == child && what->si_code == CLD_KILLED;
}

static sigset_t *one_signal(char *at) {
    sigset_t *set = (sigset_t *)at;
    sigemptyset(set), sigaddset(set, SIGUSR1);
    return set;
}

static int on_sigwait(char *at) {
    sigset_t *set = one_signal(at);
    return sigwait(set, (int *)(at + PAGE)) == 0 && *(int *)(at + PAGE) == SIGUSR1;
}

static int on_sigwaitinfo(char *at) {
    sigset_t *set = one_signal(at);
    return sigwaitinfo(set, (siginfo_t *)(at + PAGE)) == SIGUSR1;
}

static int on_sigtimedwait(char *at) {
    sigset_t *set = one_signal(at);
    struct timespec *time = (struct timespec *)(at + 512);
    *time = long_time;
    return sigtimedwait(set, (siginfo_t *)(at + PAGE), time) == SIGUSR1;
}

static sigset_t *all_but_one(char *at) {
    sigset_t *set = (sigset_t *)at;
    sigfillset(set), sigdelset(set, SIGUSR1);
    return set;
}

static int on_sigsuspend(char *at) { return sigsuspend(all_but_one(at)) == -1 && errno == EINTR; }

static int on_pause(char *at) { return at != NULL && pause() == 0; }

static int on_nanosleep(char *at) {
    *(struct timespec *)at = long_time;
    return nanosleep((struct timespec *)at, (struct timespec *)(at + PAGE));
}

static int on_clock_nanosleep(char *at) {
    *(struct timespec *)at = long_time;
    return clock_nanosleep(CLOCK_MONOTONIC, 0, (struct timespec *)at, NULL);
}

static int on_sleep(char *at) { return at != NULL && sleep(100000) == 0; }

static int on_poll(char *at) {
    struct pollfd *one = (struct pollfd *)at;
    *one = (struct pollfd){pipes[0], POLLIN, 0};
    return poll(one, 1, -1) == 1 && one->revents == POLLIN;
}

static int on_ppoll(char *at) {
    struct pollfd *one = (struct pollfd *)at;
    struct timespec *time = (struct timespec *)(at + 512);
    *one = (struct pollfd){pipes[0], POLLIN, 0}, *time = long_time;
    return ppoll(one, 1, time, all_but_one(at + PAGE)) == 1 && one->revents == POLLIN;
}

static int on_select(char *at) {
    fd_set *set = (fd_set *)at;
    FD_ZERO(set);
    FD_SET(pipes[0], set);
    return select(pipes[0] + 1, set, NULL, NULL, NULL) == 1 && FD_ISSET(pipes[0], set);
}

static int on_pselect(char *at) {
    fd_set *set = (fd_set *)at;
    struct timespec *time = (struct timespec *)(at + PAGE + 512);
    FD_ZERO(set);
    FD_SET(pipes[0], set);
    *time = long_time;
    return pselect(pipes[0] + 1, set, NULL, NULL, time, all_but_one(at + PAGE)) == 1 && FD_ISSET(pipes[0], set);
}

static int on_epoll_wait(char *at) {
    return epoll_wait(queue, (struct epoll_event *)at, 3, -1) == 1 && ((struct epoll_event *)at)->data.u64 == 77;
}

static int on_epoll_pwait(char *at) {
    struct epoll_event *event = (struct epoll_event *)at;
    return epoll_pwait(queue, event, 3, -1, all_but_one(at + PAGE)) == 1 && event->data.u64 == 77;
}

static int on_read(char *at) { return read(pipes[0], at, ROOM) == 1 && *at == 'p'; }

static struct iovec *two_pieces(char *at) {
    struct iovec *pieces = (struct iovec *)(at + PAGE);
    pieces[0] = (struct iovec){at, 1}, pieces[1] = (struct iovec){at + 1, 9};
    return pieces;
}

static int on_readv(char *at) { return readv(pipes[0], two_pieces(at), 2) == 1 && *at == 'p'; }

static int on_write(char *at) { return write(full[1], at, PAGE) == PAGE; }

static int on_writev(char *at) { return writev(full[1], two_pieces(at), 2) == 10; }

static int on_open(char *at) {
    int fd = open(strcpy(at, fifo), O_WRONLY);
    return fd >= 0 && close(fd) == 0;
}

static int on_openat(char *at) {
    int fd = openat(AT_FDCWD, strcpy(at, fifo), O_RDONLY);
    return fd >= 0 && close(fd) == 0;
}

/* A host does not pass the flag on; natively it is refused once there is another end. */
static int on_direct_open(char *at) { return open(strcpy(at, fifo), O_WRONLY | O_DIRECT) == -1; }

static int on_accept(char *at) {
    *(socklen_t *)(at + PAGE) = sizeof address;
    int fd = accept(listening, (struct sockaddr *)at, (socklen_t *)(at + PAGE));
    return fd >= 0 && close(fd) == 0;
}

static int on_accept4(char *at) {
    *(socklen_t *)(at + PAGE) = sizeof address;
    int fd = accept4(listening, (struct sockaddr *)at, (socklen_t *)(at + PAGE), SOCK_CLOEXEC);
    return fd >= 0 && close(fd) == 0;
}

static int on_recv(char *at) { return recv(sockets[0], at, ROOM, 0) == 1 && *at == 's'; }

static int on_recvfrom(char *at) {
    *(socklen_t *)(at + PAGE) = 128;
    struct sockaddr *from = (struct sockaddr *)(at + PAGE + 512);
    return recvfrom(sockets[0], at, 100, 0, from, (socklen_t *)(at + PAGE)) == 1 && *at == 's';
}

static struct msghdr *message_of(char *at) {
    struct msghdr *message = (struct msghdr *)(at + PAGE + 512);
    memset(message, 0, sizeof *message);
    message->msg_iov = two_pieces(at), message->msg_iovlen = 2;
    return message;
}

static int on_recvmsg(char *at) { return recvmsg(sockets[0], message_of(at), 0) == 1 && *at == 's'; }

static int on_send(char *at) { return send(full_sockets[1], at, 100, 0) == 100; }

static int on_sendmsg(char *at) { return sendmsg(full_sockets[1], message_of(at), 0) == 10; }

static int on_msgrcv(char *at) { return msgrcv(messages, at, 100, 0, 0) == 3 && strcmp(at + sizeof(long), "hi") == 0; }

/* There is no room for a message of the longest kind. */
static int on_msgsnd(char *at) {
    *(long *)at = 2;
    return msgsnd(messages, at, ROOM / 2, 0) == 0;
}

static int on_sem_wait(char *at) { return at != NULL && sem_wait(posts) == 0; }

static int on_sem_timedwait(char *at) {
    clock_gettime(CLOCK_REALTIME, (struct timespec *)at);
    ((struct timespec *)at)->tv_sec += long_time.tv_sec;
    return sem_timedwait(posts, (struct timespec *)at) == 0;
}

static int on_join(char *at) { return pthread_join(joined, (void **)at) == 0 && *(void **)at == data; }

static void unlock(void *unused) {
    (void)unused;
    CHECK(pthread_mutex_unlock(mutex) == 0);
}

static int on_cond_wait(char *at) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    pthread_cleanup_push(unlock, at);
    while (*at != 'w')
        pthread_cond_wait(condition, mutex);
    pthread_cleanup_pop(1);
    return 1;
}

/* A terminal of this kind is always drained. */
static int on_tcdrain(char *at) {
    while (at != NULL && tcdrain(terminal) == 0)
        ;
    return 0;
}

/* What makes the calls return, for those of which that can be said. */

static void child_begins(void) {
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* It ends with the test. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

static void child_ends(void) { CHECK(kill(child, SIGKILL) == 0); }

static void signal_comes(void) { CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0); }

static void byte_comes(void) { CHECK(write(pipes[1], "p", 1) == 1); }

static void byte_goes(void) {
    char byte;
    CHECK(read(pipes[0], &byte, 1) == 1 && byte == 'p');
}

static void fill_pipe(void) {
    char some[PAGE] = {0};
    CHECK(pipe2(full, O_NONBLOCK) == 0);
    while (write(full[1], some, PAGE) > 0)
        ;
    CHECK(errno == EAGAIN && fcntl(full[1], F_SETFL, 0) == 0);
}

static void empty_pipe(void) {
    char some[PAGE];
    while (read(full[0], some, PAGE) > 0)
        ;
}

static void close_pipe(void) { CHECK(close(full[0]) == 0 && close(full[1]) == 0); }

static int other_end;

static void other_end_opens(void) { CHECK((other_end = open(fifo, O_RDWR | O_NONBLOCK)) >= 0); }

static void other_end_closes(void) { CHECK(close(other_end) == 0); }

static int calling;

static void somebody_connects(void) {
    CHECK((calling = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(calling, (struct sockaddr *)&address, sizeof address) == 0);
}

static void hangs_up(void) { CHECK(close(calling) == 0); }

static void datagram_comes(void) { CHECK(send(sockets[1], "s", 1, 0) == 1); }

static void fill_socket(void) {
    char some[100] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, full_sockets) == 0);
    while (send(full_sockets[1], some, sizeof some, 0) > 0)
        ;
    CHECK(errno == EAGAIN && fcntl(full_sockets[1], F_SETFL, 0) == 0);
}

static void empty_socket(void) {
    char some[100];
    while (recv(full_sockets[0], some, sizeof some, 0) > 0)
        ;
}

static void close_socket(void) { CHECK(close(full_sockets[0]) == 0 && close(full_sockets[1]) == 0); }

static void no_messages(void) { CHECK((messages = msgget(IPC_PRIVATE, 0600)) >= 0); }

static void message_comes(void) {
    struct {
        long type;
        char text[3];
    } message = {7, "hi"};
    CHECK(msgsnd(messages, &message, sizeof message.text, 0) == 0);
}

static void many_messages(void) {
    static char message[sizeof(long) + ROOM / 2];
    no_messages();
    *(long *)message = 1;
    while (msgsnd(messages, message, ROOM / 2, IPC_NOWAIT) == 0)
        ;
}

static void messages_go(void) {
    static char message[sizeof(long) + ROOM / 2];
    CHECK(msgrcv(messages, message, ROOM / 2, 1, IPC_NOWAIT) == ROOM / 2);
}

static void remove_messages(void) {
    if (messages >= 0)
        CHECK(msgctl(messages, IPC_RMID, NULL) == 0);
    messages = -1;
}

static void post(void) { CHECK(sem_post(posts) == 0); }

static volatile int may_end;

static void *ends_later(void *answer) {
    while (!may_end)
        nanosleep(&look, NULL);
    return answer;
}

static void thread_begins(void) {
    may_end = 0;
    CHECK(pthread_create(&joined, NULL, ends_later, data) == 0);
}

static void thread_ends(void) { may_end = 1; }

/* `prepares` comes before the threads that are cancelled, `happens` after them, before the call
   that must succeed. Without the latter there is no such call. */
static const struct kind {
    const char *name;
    int (*call)(char *at);
    void (*prepares)(void), (*happens)(void), (*ends)(void);
} kinds[] = {
    {"wait", on_wait, child_begins, child_ends, NULL},
    {"waitpid", on_waitpid, child_begins, child_ends, NULL},
    {"waitid", on_waitid, child_begins, child_ends, NULL},
#ifdef __GLIBC__
    /* In musl these two do not end. */
    {"wait3", on_wait3, child_begins, child_ends, NULL},
    {"wait4", on_wait4, child_begins, child_ends, NULL},
#endif
    {"sigwait", on_sigwait, NULL, signal_comes, NULL},
    {"sigwaitinfo", on_sigwaitinfo, NULL, signal_comes, NULL},
    {"sigtimedwait", on_sigtimedwait, NULL, signal_comes, NULL},
    {"sigsuspend", on_sigsuspend, NULL, signal_comes, NULL},
    {"pause", on_pause, NULL, NULL, NULL},
    {"nanosleep", on_nanosleep, NULL, NULL, NULL},
    {"clock_nanosleep", on_clock_nanosleep, NULL, NULL, NULL},
    {"sleep", on_sleep, NULL, NULL, NULL},
    {"poll", on_poll, NULL, byte_comes, byte_goes},
    {"ppoll", on_ppoll, NULL, byte_comes, byte_goes},
    {"select", on_select, NULL, byte_comes, byte_goes},
    {"pselect", on_pselect, NULL, byte_comes, byte_goes},
    {"epoll_wait", on_epoll_wait, NULL, byte_comes, byte_goes},
    {"epoll_pwait", on_epoll_pwait, NULL, byte_comes, byte_goes},
    {"read", on_read, NULL, byte_comes, NULL},
    {"readv", on_readv, NULL, byte_comes, NULL},
    {"write", on_write, fill_pipe, empty_pipe, close_pipe},
    {"writev", on_writev, fill_pipe, empty_pipe, close_pipe},
    {"open", on_open, NULL, other_end_opens, other_end_closes},
    {"openat", on_openat, NULL, other_end_opens, other_end_closes},
    {"open, direct", on_direct_open, NULL, NULL, NULL},
    {"accept", on_accept, NULL, somebody_connects, hangs_up},
    {"accept4", on_accept4, NULL, somebody_connects, hangs_up},
    {"recv", on_recv, NULL, datagram_comes, NULL},
    {"recvfrom", on_recvfrom, NULL, datagram_comes, NULL},
    {"recvmsg", on_recvmsg, NULL, datagram_comes, NULL},
    {"send", on_send, fill_socket, empty_socket, close_socket},
    {"sendmsg", on_sendmsg, fill_socket, empty_socket, close_socket},
    {"msgrcv", on_msgrcv, no_messages, message_comes, remove_messages},
    {"msgsnd", on_msgsnd, many_messages, messages_go, remove_messages},
    {"sem_wait", on_sem_wait, NULL, post, NULL},
    {"sem_timedwait", on_sem_timedwait, NULL, post, NULL},
    {"pthread_join", on_join, thread_begins, thread_ends, NULL},
    {"pthread_cond_wait", on_cond_wait, NULL, NULL, NULL},
    {"tcdrain", on_tcdrain, NULL, NULL, NULL},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* When a thread is cancelled. */
enum { BEFORE, WHILE_IT_WAITS, AT_ANY_MOMENT, MOMENTS };

struct waiter {
    const struct kind *kind;
    /* Where what the call points to lies; NULL is the stack. */
    char *at;
    uint64_t *own;
    int moment;
    volatile int begun, sent, cleaned;
    volatile pid_t id;
};

#define OWN 512

static void clean(void *argument) {
    struct waiter *waiter = argument;
    waiter->cleaned++;
    CHECK(differing(waiter->own, OWN * sizeof *waiter->own, (uintptr_t)waiter->kind) == 0);
    size_t page = (uintptr_t)waiter->id % (bytes / PAGE) * PAGE;
    CHECK(differing(data + page, PAGE, page) == 0);
}

static void *waits(void *argument) {
    struct waiter *waiter = argument;
    uint64_t own[OWN];
    char room[ROOM] __attribute__((aligned(16)));
    fill(own, sizeof own, (uintptr_t)waiter->kind);
    memset(room, 0x7f, sizeof room);
    waiter->own = own;
    waiter->id = (pid_t)syscall(SYS_gettid);
    pthread_cleanup_push(clean, waiter);
    if (waiter->moment == BEFORE) {
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
        waiter->begun = 1;
        while (!waiter->sent)
            sched_yield();
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    }
    waiter->begun = 1;
    waiter->kind->call(waiter->at ? waiter->at : room);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Whether a thread sleeps. */
static int sleeps(pid_t id) {
    char path[64], text[256] = {0}, *end;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    return (end = strrchr(text, ')')) && end[2] == 'S';
}

/* Has most of the memory paged out, and checks it. */
static void stir(void) {
    for (size_t at = 0; at < bytes; at += PAGE)
        CHECK(differing(data + at, 64, at) == 0);
}

static void cancels(const struct kind *kind, int moment, char *at) {
    struct waiter waiter = {.kind = kind, .at = at, .moment = moment};
    pthread_t thread;
    void *answer = NULL;
    CHECK(pthread_create(&thread, NULL, waits, &waiter) == 0);
    while (!waiter.begun)
        sched_yield();
    if (moment == WHILE_IT_WAITS) {
        /* Nothing depends on this but what is tried. */
        for (int i = 0; i < 300 && !sleeps(waiter.id); i++)
            usleep(1000);
        if (any(8) == 0)
            stir();
    } else if (moment == AT_ANY_MOMENT) {
        for (volatile uint64_t i = any(1ull << any(18)); i > 0; i--)
            ;
    }
    CHECK(pthread_cancel(thread) == 0);
    waiter.sent = 1;
    int looks = 0;
    while (pthread_tryjoin_np(thread, &answer) != 0) {
        if (looks++ == LOOKS) {
            remove_messages();
            fprintf(stderr, "%s, moment %d, %s: the thread waits on\n", kind->name, moment, at ? "paged" : "stack");
            _exit(1);
        }
        nanosleep(looks < 100 ? &first_look : &look, NULL);
    }
    if (answer != PTHREAD_CANCELED || waiter.cleaned != 1) {
        remove_messages();
        fprintf(stderr, "%s, moment %d, %s: answer %p, cleaned %d times\n", kind->name, moment,
                at ? "paged" : "stack", answer, waiter.cleaned);
        _exit(1);
    }
}

static void on_signal(int number) { (void)number; }

/* What calls point to lies in the upper part of the data. */
static char *some_place(void) {
    char *at = data + bytes + any(bytes / 4 / PAGE) * PAGE + any(PAGE / 16) * 16;
    memset(at, 0x7f, ROOM);
    return at;
}

static void rounds_of(const struct kind *kind, long rounds) {
    if (kind->prepares)
        kind->prepares();
    for (long round = 0; round < rounds; round++)
        for (int moment = 0; moment < MOMENTS; moment++) {
            cancels(kind, moment, some_place());
            cancels(kind, moment, NULL);
        }
    if (kind->happens) {
        kind->happens();
        if (!kind->call(some_place())) {
            fprintf(stderr, "%s: what came is lost (errno: %s)\n", kind->name, strerror(errno));
            remove_messages();
            _exit(1);
        }
    }
    if (kind->ends)
        kind->ends();
}

static void begin(void) {
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, one_signal((char *)&set), NULL) == 0);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    CHECK((listening = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(listening, 9) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&address, &size) == 0);
    CHECK((queue = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 77};
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, pipes[0], &wish) == 0);
    CHECK((terminal = posix_openpt(O_RDWR | O_NOCTTY)) >= 0);
    /* The pipe has no name, so none stays behind. */
    char name[512];
    snprintf(name, sizeof name, "%s/cancels.%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    CHECK(mkfifo(name, 0600) == 0);
    int fd = open(name, O_PATH | O_CLOEXEC);
    CHECK(fd >= 0 && unlink(name) == 0);
    snprintf(fifo, sizeof fifo, "/proc/self/fd/%d", fd);
}

int main(int argc, char **argv) {
    CHECK(argc == 4 || argc == 5);
    bytes = (size_t)atoi(argv[1]) << 20;
    state = strtoull(argv[3], NULL, 10) * 2654435761 + 88172645463325252ull;
    size_t all = bytes + bytes / 4 + PAGE + ROOM;
    data = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += PAGE)
        fill(data + at, PAGE, at);
    /* On pages of their own, at the end. */
    mutex = (pthread_mutex_t *)(data + all - PAGE), condition = (pthread_cond_t *)(mutex + 1);
    posts = (sem_t *)(condition + 1);
    CHECK(pthread_mutex_init(mutex, NULL) == 0 && pthread_cond_init(condition, NULL) == 0);
    CHECK(sem_init(posts, 0, 0) == 0);
    begin();
    for (size_t i = 0; i < KINDS; i++)
        if (argc == 4 || strcmp(argv[4], kinds[i].name) == 0)
            rounds_of(&kinds[i], atol(argv[2]));
    CHECK(pthread_mutex_trylock(mutex) == 0);
    for (size_t at = 0; at < bytes; at += PAGE)
        CHECK(differing(data + at, PAGE, at) == 0);
    puts("all were cancelled, nothing was lost");
    return 0;
}

/* Threads wait in calls whose memory lies in a large mapping, while somebody adopts the
 * program. Once a file exists, what they wait for happens, and then again in some rounds,
 * before each of which all other memory was touched: what the calls name is out, or would be if
 * nobody held it. What they have read is compared. A handler runs all the time on a stack in
 * the mapping, and reads there.  usage: adopted_waits FILE      status 0 if all was right */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ, READV, RECV, RECVMSG, POLL, POLL_LIMIT, SELECT, EPOLL, FUTEX, FUTEX_LIMIT, ACCEPT, WRITE, COUNT };
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* <linux/futex.h>, which musl lacks. */
enum { FUTEX_WAIT, FUTEX_WAKE };
enum { ROUNDS = 4, ZONE = 4 << 20, SENT = 40000, REST = 48 << 20, STACK = 1 << 20 };

static char *data, *rest;
static int pairs[COUNT][2], zeros, listening, poll_fd, wrong, ticks;
static int connections[ROUNDS];
static struct sockaddr_in address;
static volatile int is_over, round_of[COUNT];
static pthread_barrier_t ends;

static void fail(const char *what, int kind, int round) {
    fprintf(stderr, "%s: call %d, round %d: %s\n", what, kind, round, strerror(errno));
    __sync_fetch_and_add(&wrong, 1);
}

static char byte(int kind, int round, size_t at) {
    return (char)(at * 31 + kind * 7 + round * 101 + (at >> 9));
}

static char *zone(int kind) {
    return data + (size_t)kind * ZONE;
}

/* All structures and buffers of a call lie in its zone, each on pages of its own. */
static long receive(int kind, char *own) {
    struct iovec *pieces = (struct iovec *)own;
    struct msghdr *header = (struct msghdr *)(own + 8192);
    char *buffer = own + (1 << 20) + 100;
    int fd = pairs[kind][0];
    pieces[0] = (struct iovec){buffer, SENT / 3};
    pieces[1] = (struct iovec){buffer + SENT / 3, SENT - SENT / 3};
    *header = (struct msghdr){.msg_iov = pieces, .msg_iovlen = 2};
    switch (kind) {
    case READ: return read(fd, buffer, SENT);
    case READV: return readv(fd, pieces, 2);
    case RECV: return recv(fd, buffer, SENT, MSG_WAITALL);
    default: return recvmsg(fd, header, MSG_WAITALL);
    }
}

static void receive_all(int kind, int round) {
    char *buffer = zone(kind) + (1 << 20) + 100;
    size_t got = 0;
    while (got < SENT) {
        long len = receive(kind, zone(kind));
        if (len <= 0) {
            fail("receive", kind, round);
            return;
        }
        for (long at = 0; at < len; at++)
            if (buffer[at] != byte(kind, round, got + at)) {
                fail("a byte", kind, round);
                return;
            }
        got += len;
    }
}

static void await(int kind, int round) {
    char *own = zone(kind), one[2];
    struct pollfd *asked = (struct pollfd *)(own + 5000 * 8);
    struct epoll_event *event = (struct epoll_event *)(own + (1 << 20));
    struct sockaddr_in *from = (struct sockaddr_in *)(own + (2 << 20));
    fd_set *set = (fd_set *)(own + (3 << 20));
    struct timespec *limit = (struct timespec *)(own + 4096);
    uint32_t *word = (uint32_t *)(own + 65536 + 4 * round);
    socklen_t *len = (socklen_t *)(own + 64);
    long answer = 0;
    *asked = (struct pollfd){.fd = pairs[kind][0], .events = POLLIN};
    *limit = (struct timespec){600, 0};
    *len = sizeof *from;
    switch (kind) {
    case POLL: answer = poll(asked, 1, -1) == 1 && asked->revents == POLLIN; break;
    case POLL_LIMIT: answer = poll(asked, 1, 600000) == 1 && asked->revents == POLLIN; break;
    case SELECT:
        FD_ZERO(set);
        FD_SET(pairs[kind][0], set);
        answer = select(pairs[kind][0] + 1, set, NULL, NULL, NULL) == 1 && FD_ISSET(pairs[kind][0], set);
        break;
    case EPOLL: answer = epoll_wait(poll_fd, event, 1, -1) == 1 && event->data.u64 == 77; break;
    case FUTEX: case FUTEX_LIMIT:
        while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
            if (syscall(SYS_futex, word, FUTEX_WAIT, 0, kind == FUTEX ? NULL : limit, NULL, 0) && errno != EAGAIN && errno != EINTR) {
                fail("futex", kind, round);
                return;
            }
        return;
    case ACCEPT:
        answer = accept(listening, (struct sockaddr *)from, len);
        answer = answer >= 0 && *len == sizeof *from && from->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && !close(answer);
        break;
    case WRITE:
        for (int at = 0; at < 3 * SENT; at++)
            own[9000 + at] = byte(kind, round, at);
        /* A stop may end a long write early. */
        for (long len, put = 0; (answer = put == 3 * SENT) == 0; put += len)
            if ((len = write(pairs[kind][1], own + 9000 + put, 3 * SENT - put)) <= 0)
                break;
        break;
    }
    if (!answer)
        fail("a wait", kind, round);
    if (kind != ACCEPT && kind != WRITE && (read(pairs[kind][0], one, 1) != 1 || *one != 'x'))
        fail("a byte after a wait", kind, round);
}

static void *work(void *number) {
    int kind = (intptr_t)number;
    for (int round = 0; round < ROUNDS; round++) {
        round_of[kind] = round;
        if (kind <= RECVMSG)
            receive_all(kind, round);
        else
            await(kind, round);
        pthread_barrier_wait(&ends);
        pthread_barrier_wait(&ends);
    }
    return NULL;
}

static void happen(int kind, int round) {
    static char sent[SENT], got[3 * SENT];
    if (kind <= RECVMSG) {
        for (int at = 0; at < SENT; at++)
            sent[at] = byte(kind, round, at);
        if (write(pairs[kind][1], sent, SENT) != SENT)
            fail("send", kind, round);
    } else if (kind == FUTEX || kind == FUTEX_LIMIT) {
        uint32_t *word = (uint32_t *)(zone(kind) + 65536 + 4 * round);
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    } else if (kind == ACCEPT) {
        connections[round] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connections[round], (struct sockaddr *)&address, sizeof address))
            fail("connect", kind, round);
    } else if (kind == WRITE) {
        int len = 0;
        while (len < 3 * SENT) {
            long part = read(pairs[kind][0], got + len, sizeof got - len);
            if (part <= 0) {
                fail("read", kind, round);
                return;
            }
            len += part;
        }
        for (int at = 0; at < len; at++)
            if (got[at] != byte(kind, round, at)) {
                fail("a written byte", kind, round);
                break;
            }
    } else if (write(pairs[kind][1], "x", 1) != 1)
        fail("send", kind, round);
}

/* Touches and checks all other memory. */
static void sweep(int times) {
    uint64_t *words = (uint64_t *)rest;
    for (int time = 0; time < times; time++)
        for (size_t i = 0; i < REST / 8; i += 64) {
            if (words[i] != i * 0x9e3779b97f4a7c15)
                fail("a word", -1, time);
            words[i + 1]++;
        }
}

static void tick(int signal) {
    char *buffer = rest + REST + (ticks * 4099u) % (8 << 20);
    volatile char deep[64 << 10];
    (void)signal;
    int before = errno;
    for (size_t at = 0; at < sizeof deep; at += 1024)
        deep[at] = 1;
    *buffer = 1;
    if (read(zeros, buffer, 1000) != 1000 || *buffer)
        fail("a handler's read", -1, ticks);
    ticks++;
    errno = before;
}

static void *handle(void *stack) {
    stack_t aside = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    struct itimerspec times = {{0, 10000000}, {0, 10000000}};
    timer_t timer;
    event.sigev_notify_thread_id = gettid();
    if (sigaltstack(&aside, NULL) || sigaction(SIGRTMIN, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &times, NULL))
        fail("a timer", -1, 0);
    while (!is_over)
        pause();
    timer_delete(timer);
    return NULL;
}

int main(int count, char **arguments) {
    size_t len = (size_t)COUNT * ZONE + REST + (16 << 20) + STACK;
    pthread_t threads[COUNT], handler;
    socklen_t size = sizeof address;
    if (count != 2)
        return 2;
    data = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rest = data + (size_t)COUNT * ZONE;
    for (size_t i = 0; i < REST / 8; i++)
        ((uint64_t *)rest)[i] = i * 0x9e3779b97f4a7c15;
    zeros = open("/dev/zero", O_RDONLY);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 9) || getsockname(listening, (struct sockaddr *)&address, &size))
        return 2;
    poll_fd = epoll_create1(0);
    pthread_barrier_init(&ends, NULL, COUNT + 1);
    for (intptr_t kind = 0; kind < COUNT; kind++) {
        int is_pipe = kind == READ || kind == READV || kind == WRITE;
        if (is_pipe ? pipe(pairs[kind]) : socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[kind]))
            return 2;
    }
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 77};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, pairs[EPOLL][0], &wish);
    for (intptr_t kind = 0; kind < COUNT; kind++)
        pthread_create(&threads[kind], NULL, work, (void *)kind);
    pthread_create(&handler, NULL, handle, data + len - STACK);
    usleep(300000);
    puts("ready"), fflush(stdout);
    while (access(arguments[1], F_OK))
        sweep(1);
    for (int round = 0; round < ROUNDS; round++) {
        /* Once more, so that all threads wait, and what they do not hold is out. */
        sweep(3);
        for (int kind = 0; kind < COUNT; kind++)
            happen(kind, round);
        pthread_barrier_wait(&ends);
        sweep(2);
        pthread_barrier_wait(&ends);
    }
    is_over = 1;
    pthread_kill(handler, SIGRTMIN);
    pthread_join(handler, NULL);
    for (int kind = 0; kind < COUNT; kind++)
        pthread_join(threads[kind], NULL);
    printf("%d wrong\n", wrong);
    fprintf(stderr, "%d ticks\n", ticks);
    return wrong != 0 || ticks == 0;
}

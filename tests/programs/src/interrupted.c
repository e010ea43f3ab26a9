/* Threads wait, each in another call that a stop interrupts and the kernel does not begin again.
 * Once a file exists, what they wait for happens. Each call must return that, not EINTR.
 *
 * usage: interrupted FILE      status 0 if all calls are right
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { EPOLL, EPOLL_LIMIT, RECV, READ, READV, RECVMSG, SIGNAL, SEMOP, SEMTIMEDOP, ACCEPT, SEND, COUNT };

static const char *const names[COUNT] = {"epoll_wait", "epoll_wait with a limit", "recv", "read", "readv", "recvmsg", "sigtimedwait", "semop", "semtimedop", "accept", "send"};
static int poll_fd, event, semaphores, listening, pairs[COUNT][2];
static long results[COUNT];
static int errors[COUNT];

/* A wait of a socket with such a limit ends with EINTR (signal(7)). */
static void limit(int fd, int option) {
    struct timeval limit = {600, 0};
    if (setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit))
        perror("setsockopt"), exit(2);
}

static long wait_in(int call) {
    char bytes[4];
    struct iovec vector = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct epoll_event events[4];
    struct timespec most = {600, 0};
    struct sembuf take = {(unsigned short)(call == SEMOP), -1, 0};
    sigset_t set;
    int fd = pairs[call][0];
    switch (call) {
    case EPOLL: return epoll_wait(poll_fd, events, 4, -1);
    case EPOLL_LIMIT: return epoll_wait(poll_fd, events, 4, 600000);
    case RECV: return recv(fd, bytes, sizeof bytes, 0);
    case READ: return read(fd, bytes, sizeof bytes);
    case READV: return readv(fd, &vector, 1);
    case RECVMSG: return recvmsg(fd, &message, 0);
    case SIGNAL:
        sigemptyset(&set), sigaddset(&set, SIGUSR2);
        return sigtimedwait(&set, NULL, &most) == SIGUSR2;
    case SEMOP: return semop(semaphores, &take, 1) == 0;
    case SEMTIMEDOP: return semtimedop(semaphores, &take, 1, &most) == 0;
    case ACCEPT: return accept(listening, NULL, NULL) >= 0;
    default: return send(fd, "x", 1, 0);
    }
}

static void *work(void *number) {
    int call = (int)(intptr_t)number;
    results[call] = wait_in(call);
    errors[call] = errno;
    return NULL;
}

static void set_up(void) {
    struct epoll_event wish = {.events = EPOLLIN};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    poll_fd = epoll_create1(0), event = eventfd(0, 0);
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, event, &wish);
    for (int call = 0; call < COUNT; call++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[call]))
            perror("socketpair"), exit(2);
        else
            limit(pairs[call][0], call == SEND ? SO_SNDTIMEO : SO_RCVTIMEO);
    semaphores = semget(IPC_PRIVATE, 2, 0600);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    limit(listening, SO_RCVTIMEO);
    while (send(pairs[SEND][0], "x", 1, MSG_DONTWAIT) == 1)
        continue;
    if (semaphores < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 1))
        perror("set up"), exit(2);
}

/* What the threads wait for. */
static void happen(pthread_t *threads) {
    struct sembuf give[] = {{0, 1, 0}, {1, 1, 0}};
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    eventfd_t one = 1;
    char bytes[1 << 16];
    if (write(event, &one, sizeof one) != sizeof one || semop(semaphores, give, 2))
        perror("happen");
    for (int call = RECV; call <= RECVMSG; call++)
        if (write(pairs[call][1], "x", 1) != 1)
            perror("write");
    pthread_kill(threads[SIGNAL], SIGUSR2);
    getsockname(listening, (struct sockaddr *)&address, &len);
    if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, len))
        perror("connect");
    for (int i = 0; i < 16; i++)
        if (recv(pairs[SEND][1], bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            break;
}

int main(int count, char **arguments) {
    pthread_t threads[COUNT];
    struct timespec pause = {0, 10000000};
    int wrong = 0;
    set_up();
    for (intptr_t call = 0; call < COUNT; call++)
        pthread_create(&threads[call], NULL, work, (void *)call);
    while (count > 1 && access(arguments[1], F_OK))
        if (nanosleep(&pause, NULL))
            wrong++, perror("nanosleep");
    happen(threads);
    for (int call = 0; call < COUNT; call++) {
        pthread_join(threads[call], NULL);
        if (results[call] != 1)
            wrong++, printf("%s: %ld, %s\n", names[call], results[call], strerror(errors[call]));
    }
    semctl(semaphores, 0, IPC_RMID);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}

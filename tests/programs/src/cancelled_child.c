/* Children of forks cancel threads of theirs that wait in calls whose memory is paged: at once or
 * at a cancellation point, before the call, at its beginning, or while it waits. Their cleanup
 * runs, and what they have waited for is still there for the next.
 *
 * usage: cancelled_child MIB ROUNDS SEED
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PAGE 4096
enum { KINDS = 5, WAITERS = 3, GENERATIONS = 2 };

static char *data;
static size_t bytes;
static uint64_t state;
static int pipes[2], sockets[2];
static atomic_int begun;

static uint64_t any(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

/* A thread that waits, and how. */
struct waiter {
    int kind, at_once, cleaned;
    char *at;
};

static void clean(void *waiter) {
    ((struct waiter *)waiter)->cleaned++;
}

static void *waits(void *argument) {
    struct waiter *waiter = argument;
    pthread_cleanup_push(clean, waiter);
    if (waiter->at_once)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    begun++;
    struct iovec *pieces = (struct iovec *)waiter->at;
    struct pollfd *polled = (struct pollfd *)waiter->at;
    switch (waiter->kind) {
    case 0:
        read(pipes[0], waiter->at, PAGE + 1);
        break;
    case 1:
        recv(sockets[0], waiter->at, PAGE + 1, 0);
        break;
    case 2:
        polled[0] = (struct pollfd){pipes[0], POLLIN, 0};
        polled[1] = (struct pollfd){sockets[0], POLLIN, 0};
        poll(polled, 2, -1);
        break;
    case 3:
        pieces[0] = (struct iovec){waiter->at + PAGE, 10};
        pieces[1] = (struct iovec){waiter->at + 2 * PAGE, 10};
        readv(pipes[0], pieces, 2);
        break;
    case 4: {
        struct msghdr *message = (struct msghdr *)waiter->at;
        pieces = (struct iovec *)(waiter->at + PAGE);
        memset(message, 0, sizeof *message);
        pieces[0] = (struct iovec){waiter->at + 2 * PAGE, 10};
        message->msg_iov = pieces, message->msg_iovlen = 1;
        recvmsg(sockets[0], message, 0);
    }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Has most of the memory paged out, and checks it. */
static void stir(void) {
    for (size_t at = 3 * PAGE; at < bytes; at += 4 * PAGE)
        CHECK(*(size_t *)(data + at) == at);
}

static void round_of(void) {
    struct waiter waiters[WAITERS];
    pthread_t threads[WAITERS];
    begun = 0;
    for (int i = 0; i < WAITERS; i++) {
        char *at = data + (any(bytes / PAGE / 4 / WAITERS - 1) * WAITERS + i) * 4 * PAGE;
        waiters[i] = (struct waiter){any(KINDS), any(2), 0, at};
        CHECK(pthread_create(&threads[i], NULL, waits, &waiters[i]) == 0);
    }
    if (any(2))
        while (begun < WAITERS)
            nanosleep(&(struct timespec){0, 100000}, NULL);
    if (any(2))
        nanosleep(&(struct timespec){0, any(4000000)}, NULL);
    if (any(4) == 0)
        stir();
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_cancel(threads[i]) == 0);
    for (int i = 0; i < WAITERS; i++) {
        void *answer;
        CHECK(pthread_join(threads[i], &answer) == 0 && answer == PTHREAD_CANCELED);
        /* One that was cancelled before it began has nothing to clean. */
        CHECK(waiters[i].cleaned == 1 || begun < WAITERS);
    }
    char *at = data + any(bytes / PAGE / 4 - 1) * 4 * PAGE;
    CHECK(write(pipes[1], "p", 1) == 1 && read(pipes[0], at, PAGE) == 1 && *at == 'p');
    CHECK(send(sockets[1], "s", 1, 0) == 1 && recv(sockets[0], at, PAGE, 0) == 1 && *at == 's');
}

static void generation(int left, long rounds) {
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
    for (long round = 0; round < rounds; round++)
        round_of();
    stir();
    if (left == 0)
        return;
    /* One thread waits here while the child begins, which has no such thread. */
    struct waiter waiter = {any(KINDS), 0, 0, data};
    pthread_t thread;
    begun = 0;
    CHECK(pthread_create(&thread, NULL, waits, &waiter) == 0);
    while (begun < 1)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        generation(left - 1, rounds);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    void *answer;
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &answer) == 0);
    CHECK(answer == PTHREAD_CANCELED && waiter.cleaned == 1);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    bytes = atol(argv[1]) * MIB;
    state = atol(argv[3]) * 2 + 1;
    for (int i = 0; i < 9; i++)
        any(2);
    data = malloc(bytes + PAGE);
    CHECK(data != NULL);
    data += PAGE - (uintptr_t)data % PAGE;
    for (size_t at = 0; at < bytes; at += PAGE)
        *(size_t *)(data + at) = at;
    generation(GENERATIONS, atol(argv[2]));
    puts("all cancelled");
    return 0;
}

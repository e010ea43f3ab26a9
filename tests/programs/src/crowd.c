/* Many threads whose calls name much memory at the same time: reads that wait, of streams and of
   messages, and reads of a file. Usage: crowd MIB THREADS. The threads share the MIB in equal
   parts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SENT (300 << 10)
#define MESSAGE (100 << 10)

static char *data;
static size_t part;
static int file, threads;
static pthread_barrier_t all;
struct thread {
    pthread_t id;
    int number, stream[2], messages[2], wrong;
};

static char byte(int number, size_t at) {
    return (char)(at * 31 + number * 7 + (at >> 13));
}
static int is_right(const char *from, size_t len, int number) {
    for (size_t at = 0; at < len; at++)
        if (from[at] != byte(number, at))
            return 0;
    return 1;
}

/* A process that is stopped meanwhile writes only a part. */
static int write_all(int to, const char *from, size_t len) {
    for (ssize_t done; len > 0; from += done, len -= done)
        if ((done = write(to, from, len)) <= 0)
            return 1;
    return 0;
}

static void *work(void *argument) {
    struct thread *t = argument;
    char *own = data + part * t->number;
    /* All wait at the same time, with all of their memory. */
    size_t got = 0;
    while (got < SENT) {
        struct iovec piece = {own + got, part - got};
        struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
        long len = t->number % 2 ? recvmsg(t->stream[0], &header, 0) : read(t->stream[0], own + got, part - got);
        if (len <= 0)
            break;
        got += len;
    }
    t->wrong += got != SENT || !is_right(own, SENT, t->number);
    pthread_barrier_wait(&all);
    struct iovec piece = {own, MESSAGE + 5000};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
    t->wrong += recvmsg(t->messages[0], &header, 0) != MESSAGE || !is_right(own, MESSAGE, t->number);
    pthread_barrier_wait(&all);
    for (int turn = 0; turn < 3; turn++) {
        memset(own, 0, part);
        t->wrong += pread(file, own, part, 0) != (long)part || !is_right(own, part, 1000);
        t->wrong += pread(file, own, part / 2, part / 2) != (long)(part / 2);
        t->wrong += own[0] != byte(1000, part / 2);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    size_t bytes = strtoul(arguments[1], NULL, 10) << 20;
    threads = atoi(arguments[2]);
    part = bytes / threads & ~4095ul;
    data = malloc(bytes);
    memset(data, 1, bytes);
    char name[] = "/tmp/crowd.XXXXXX";
    file = mkstemp(name);
    unlink(name);
    char *text = data;
    for (size_t at = 0; at < part; at++)
        text[at] = byte(1000, at);
    if (file < 0 || write(file, text, part) != (long)part)
        return perror(name), 2;
    pthread_barrier_init(&all, NULL, threads + 1);
    struct thread *own = calloc(threads, sizeof *own);
    for (int i = 0; i < threads; i++) {
        int room = 2 * MESSAGE;
        own[i].number = i;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, own[i].stream) || socketpair(AF_UNIX, SOCK_DGRAM, 0, own[i].messages))
            return perror("socketpair"), 2;
        setsockopt(own[i].messages[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        if (pthread_create(&own[i].id, NULL, work, own + i))
            return 2;
    }
    static char sent[SENT];
    usleep(300000);
    for (size_t at = 0; at < bytes; at += 4096)
        (void)*(volatile char *)(data + at);
    int wrong = 0;
    for (int i = threads - 1; i >= 0; i--) {
        for (size_t at = 0; at < SENT; at++)
            sent[at] = byte(i, at);
        wrong += write_all(own[i].stream[1], sent, SENT);
    }
    pthread_barrier_wait(&all);
    usleep(300000);
    for (int i = threads - 1; i >= 0; i--) {
        for (size_t at = 0; at < MESSAGE; at++)
            sent[at] = byte(i, at);
        wrong += write(own[i].messages[1], sent, MESSAGE) != MESSAGE;
    }
    pthread_barrier_wait(&all);
    for (int i = 0; i < threads; i++) {
        pthread_join(own[i].id, NULL);
        wrong += own[i].wrong;
    }
    printf("%d threads, %d wrong\n", threads, wrong);
    return wrong != 0;
}

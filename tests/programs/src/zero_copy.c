/* Memory that the kernel sends without copying it: a pipe that was filled by vmsplice, and a socket
 * with MSG_ZEROCOPY, hold the very pages, without pinning them. They must carry the bytes that were
 * there, though the blocks have long left memory.
 *
 * usage: zero_copy MIB
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

enum { PIPE_BYTES = 1 << 20, SOCKET_BYTES = 4 << 20 };

static char *data;
static size_t size;

/* Touches everything but the part that is on its way: it is the kernel's to read until it has
 * arrived. */
static void press(const char *part, size_t length)
{
    for (int round = 0; round < 2; round++)
        for (char *place = data; place < data + size; place += 64)
            if (place < part || place >= part + length)
                *place = (char)(*place + 1);
}

/* Reads what `fill` wrote from a descriptor. */
static void expect(int from, size_t length, uint64_t series)
{
    char *got = malloc(length);
    CHECK(got != NULL);
    for (size_t done = 0; done < length;) {
        ssize_t some = read(from, got + done, length - done);
        CHECK(some > 0);
        done += (size_t)some;
    }
    CHECK(differing(got, length, series) == 0);
    free(got);
}

static void pipes(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) >= 0);
    char *part = data + size / 3 / 4096 * 4096;
    fill(part, PIPE_BYTES, 1);
    for (size_t done = 0; done < PIPE_BYTES;) {
        /* Two pieces at a time. */
        size_t half = (PIPE_BYTES - done) / 2;
        struct iovec pieces[] = {{part + done, half}, {part + done + half, PIPE_BYTES - done - half}};
        ssize_t some = vmsplice(ends[1], pieces, 2, 0);
        CHECK(some > 0);
        done += (size_t)some;
    }
    /* Full: what shall not wait says so. */
    struct iovec more = {part, 4096};
    CHECK(vmsplice(ends[1], &more, 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    press(part, PIPE_BYTES);
    expect(ends[0], PIPE_BYTES, 1);
    /* The other way. */
    CHECK(write(ends[1], "from the pipe", 13) == 13);
    struct iovec into = {part + 5, 13};
    CHECK(vmsplice(ends[0], &into, 1, 0) == 13);
    CHECK(memcmp(part + 5, "from the pipe", 13) == 0);
    close(ends[0]);
    close(ends[1]);
    errno = 0;
    CHECK(vmsplice(-1, &into, 1, 0) == -1 && errno == EBADF);
}

/* By the C library's function, or by the call's number. */
static void sockets(int by_number)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int door = socket(AF_INET, SOCK_STREAM, 0), little = 4096, much = 2 * SOCKET_BYTES, one = 1, to, from;
    CHECK(door >= 0 && setsockopt(door, SOL_SOCKET, SO_RCVBUF, &little, sizeof little) == 0);
    CHECK(bind(door, (struct sockaddr *)&address, sizeof address) == 0 && listen(door, 1) == 0);
    CHECK(getsockname(door, (struct sockaddr *)&address, &length) == 0);
    to = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(to >= 0 && setsockopt(to, SOL_SOCKET, SO_SNDBUF, &much, sizeof much) == 0);
    CHECK(connect(to, (struct sockaddr *)&address, sizeof address) == 0);
    from = accept(door, NULL, NULL);
    CHECK(from >= 0);
    /* A program that may not goes on without, as on an old kernel. */
    long set = by_number ? syscall(SYS_setsockopt, to, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one)
                         : setsockopt(to, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
    int flags = set == 0 ? MSG_ZEROCOPY : 0;
    char *part = data + size / 2 / 4096 * 4096;
    fill(part, SOCKET_BYTES, 2);
    ssize_t sent = send(to, part, SOCKET_BYTES, flags | MSG_DONTWAIT);
    CHECK(sent > 0);
    press(part, SOCKET_BYTES);
    expect(from, (size_t)sent / 8 * 8, 2);
    close(to);
    close(from);
    close(door);
}

/* A child must not have the parent's secrets. */
static void wiped(void)
{
    size_t length = 1 << 20;
    char *secret = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(secret != MAP_FAILED);
    memset(secret, 's', length);
    CHECK(madvise(secret, length / 2, MADV_WIPEONFORK) == 0);
    press(NULL, 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < length; i++)
            if (secret[i] != (i < length / 2 ? 0 : 's'))
                _exit(1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (size_t i = 0; i < length; i++)
        CHECK(secret[i] == 's');
    CHECK(munmap(secret, length) == 0);
    CHECK(madvise(data, 4096, 12345) == -1 && errno == EINVAL);
}

/* All pieces of one call are one packet. */
static void packets(void)
{
    int ends[2];
    CHECK(pipe2(ends, O_DIRECT) == 0);
    fill(data, 4096, 3);
    struct iovec out[] = {{data, 100}, {data + 100, 300}, {data + 400, 200}};
    char *got = data + size / 2;
    struct iovec in[] = {{got, 50}, {got + 50, 350}, {got + 400, 1000}};
    for (int round = 0; round < 2; round++) {
        CHECK(writev(ends[1], out, 3) == 600);
        CHECK(write(ends[1], data, 8) == 8);
        memset(got, 0, 600);
        CHECK(readv(ends[0], in, 3) == 600 && memcmp(got, data, 600) == 0);
        CHECK(readv(ends[0], in, 3) == 8);
    }
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 128) << 20;
    /* In whole pages, of which a pipe holds a fixed number. */
    CHECK(posix_memalign((void **)&data, 4096, size) == 0);
    memset(data, 1, size);
    pipes();
    packets();
    sockets(0);
    sockets(1);
    wiped();
    printf("what was sent arrived\n");
    return 0;
}

/* What paging from another machine's memory costs with nothing around it: from the fault to the
 * bytes in place, without policy, store, table or hash. The design of far memory is compared with
 * this cost.
 *
 *     cc -O2 -pthread bare.c -o bare
 *     ./bare stream DESIGN [NAME=VALUE ...]
 *     ./bare latency [NAME=VALUE ...]
 *
 * A server process answers "GETRANGE first bytes" from its memory over TCP on this machine. The
 * program, one thread, reads its memory in order, and finds at most half of `pool` ahead of itself
 * in place. Designs:
 *     peer      the client receives into the same memory again and again: no paging
 *     one       one thread receives into frames, moves them in, and moves old frames out
 *     receiver  a thread for each connection receives; another thread moves
 *     copy      one thread receives into a buffer, copies it in, and discards old pages
 *
 * Names: block (bytes), run (blocks of a request), connections, ahead (requests under way), pace
 * (bytes a second of all connections, 0: as fast as possible), data and pool (MiB), passes; for
 * latency: block, spin (1: the pager never sleeps), same (1: on the program's processor, 0: on
 * another one).
 *
 * The program prints MiB/s, and the processor time of each thread in seconds for each GiB. Each
 * block is checked in eight places; a wrong block ends the program with status 1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UFFDIO_MOVE
struct uffdio_move { uint64_t dst, src, len, mode; int64_t move; };
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

#define PAGE 4096ul
#define MIB (1ul << 20)
#define CONNECTIONS 16
#define CHECKS 8
#define LATENCY_ROUNDS 20000

static uint64_t block = 16384, run = 16, connections = 1, ahead = 8, pace, data = 1024, pool = 64,
                passes = 2, spin, same = 2;
static const char *design;
static uint64_t request, blocks, requests, resident;
static char *arena, *frames, *blank;
static int faults, sockets[CONNECTIONS];
static _Atomic uint64_t wanted, prepared, received[CONNECTIONS];
static _Atomic int ended;
static double pager_s, program_s, receiver_s[CONNECTIONS];

static void fail(const char *what) { perror(what); exit(1); }
static double at_clock(clockid_t id)
{
    struct timespec time;
    clock_gettime(id, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
static double now(void) { return at_clock(CLOCK_MONOTONIC); }
static double processor(void) { return at_clock(CLOCK_THREAD_CPUTIME_ID); }
static int is(const char *name) { return !strcmp(design, name); }

/* The word at a place of the data, in words. */
static uint64_t word(uint64_t place) { return (place + 1) * 0x9e3779b97f4a7c15u; }

static void check(uint64_t number, const char *bytes)
{
    uint64_t words = block / 8;
    for (uint64_t index = 0; index < CHECKS; index++) {
        uint64_t place = index * (words / CHECKS) + index;
        if (((const uint64_t *)bytes)[place] == word(number % blocks * words + place)) continue;
        fprintf(stderr, "bare: block %lu has wrong bytes\n", number);
        exit(1);
    }
}

/* Reads or writes all the pieces. */
static int transfer(ssize_t (*call)(int, const struct iovec *, int), int socket, struct iovec *pieces,
                    int count)
{
    while (count > 0) {
        ssize_t done = call(socket, pieces, count);
        if (done <= 0) return 0;
        for (; count > 0 && (size_t)done >= pieces->iov_len; pieces++, count--) done -= pieces->iov_len;
        if (count > 0) {
            pieces->iov_base = (char *)pieces->iov_base + done;
            pieces->iov_len -= done;
        }
    }
    return 1;
}

/* ---- the server ---- */
static char *memory;

static void *serve(void *argument)
{
    int socket = (int)(long)argument;
    uint64_t rate = pace / connections;
    if (pace) setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    char text[65536];
    for (size_t have = 0;;) {
        ssize_t got = read(socket, text + have, sizeof text - 1 - have);
        if (got <= 0) return NULL;
        have += got;
        text[have] = 0;
        char *line = text, *end;
        while ((end = memchr(line, '\n', text + have - line)) != NULL) {
            size_t first, bytes;
            if (sscanf(line, "GETRANGE %zu %zu", &first, &bytes) != 2) return NULL;
            char head[32];
            struct iovec pieces[] = {{head, sprintf(head, "$%zu\r\n", bytes)}, {memory + first, bytes},
                                     {"\r\n", 2}};
            if (!transfer(writev, socket, pieces, 3)) return NULL;
            line = end + 1;
        }
        have -= line - text;
        memmove(text, line, have);
    }
}

static pid_t start_server(struct sockaddr_in *address)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)address, size) || listen(listener, CONNECTIONS)
        || getsockname(listener, (void *)address, &size))
        fail("listen");
    pid_t parent = getpid(), server = fork();
    if (server < 0) fail("fork");
    if (server > 0) {
        close(listener);
        return server;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (;;) {
        int socket = accept(listener, NULL, NULL);
        pthread_t thread;
        if (socket < 0 || pthread_create(&thread, NULL, serve, (void *)(long)socket)) _exit(1);
    }
}

static double server_seconds(pid_t server)
{
    clockid_t clock;
    return clock_getcpuclockid(server, &clock) ? 0 : at_clock(clock);
}

/* ---- request `index` is for `run` blocks, on connection `index % connections` ---- */
static void ask(uint64_t index)
{
    char text[64];
    uint64_t first = index % (blocks / run) * request;
    int size = sprintf(text, "GETRANGE %lu %lu\n", first, request);
    if (write(sockets[index % connections], text, size) != size) fail("write");
}

static char *frames_of(uint64_t index) { return frames + index % ahead * request; }

static void receive(uint64_t index)
{
    char head[32], end[2], *place = frames_of(index);
    struct iovec pieces[] = {{head, sprintf(head, "$%lu\r\n", request)}, {place, request}, {end, 2}};
    if (!transfer(readv, sockets[index % connections], pieces, 3)) fail("read");
    if (head[0] != '$' || memcmp(end, "\r\n", 2)) {
        fprintf(stderr, "bare: a reply is no reply\n");
        exit(1);
    }
    for (uint64_t number = 0; number < run; number++) check(index * run + number, place + number * block);
}

/* ---- memory ---- */
static void move(char *to, char *from)
{
    struct uffdio_move call = {(uint64_t)to, (uint64_t)from, request, 0, 0};
    while (ioctl(faults, UFFDIO_MOVE, &call)) {
        if (errno != EAGAIN) fail("UFFDIO_MOVE");
        uint64_t done = call.move > 0 ? call.move : 0;
        call = (struct uffdio_move){call.dst + done, call.src + done, call.len - done, 0, 0};
    }
}

static void copy(char *to, char *from, uint64_t len)
{
    struct uffdio_copy call = {(uint64_t)to, (uint64_t)from, len, 0, 0};
    if (ioctl(faults, UFFDIO_COPY, &call)) fail("UFFDIO_COPY");
}

static char *program_of(uint64_t index) { return arena + index % (blocks / run) * request; }

/* Makes room for a request: the frames that have been in the program for longest. */
static void prepare(uint64_t index)
{
    if (index < resident) {
        if (!is("copy") && index >= ahead) copy(frames_of(index), blank, request);
    } else if (is("copy")) {
        if (madvise(program_of(index - resident), request, MADV_DONTNEED)) fail("madvise");
    } else {
        move(frames_of(index), program_of(index - resident));
    }
}

static void *receive_all(void *argument)
{
    uint64_t connection = (uint64_t)argument;
    double since = processor();
    for (uint64_t index = connection; index < requests; index += connections) {
        while (atomic_load(&prepared) <= index) sched_yield();
        receive(index);
        atomic_store(&received[connection], index + 1);
    }
    receiver_s[connection] = processor() - since;
    return NULL;
}

static void *page_in_all(void *argument)
{
    double since = processor();
    uint64_t ready = 0, done = 0;
    while (done < requests) {
        while (ready < requests && ready < done + ahead
               && ready * run < atomic_load(&wanted) + resident * run / 2) {
            prepare(ready);
            ask(ready);
            atomic_store(&prepared, ++ready);
        }
        if (done == ready || (is("receiver") && atomic_load(&received[done % connections]) <= done)) {
            sched_yield();
            continue;
        }
        if (!is("receiver")) receive(done);
        if (is("copy")) copy(program_of(done), frames_of(done), request);
        else move(program_of(done), frames_of(done));
        done++;
    }
    pager_s = processor() - since;
    return argument;
}

static void read_all(void)
{
    double since = processor();
    for (uint64_t number = 0; number < requests * run; number++) {
        atomic_store(&wanted, number);
        char *bytes = arena + number % blocks * block;
        for (uint64_t page = 0; page < block; page += PAGE) (void)*(volatile char *)(bytes + page);
        check(number, bytes);
    }
    program_s = processor() - since;
}

static void stream(pid_t server)
{
    double before_s = server_seconds(server), since = now();
    if (is("peer")) {
        double processor_since = processor();
        for (uint64_t index = 0, asked = 0; index < requests; index++) {
            while (asked < requests && asked < index + ahead) ask(asked++);
            receive(index);
        }
        receiver_s[0] = processor() - processor_since;
    } else {
        pthread_t pager, receivers[CONNECTIONS];
        for (uint64_t index = 0; is("receiver") && index < connections; index++)
            if (pthread_create(&receivers[index], NULL, receive_all, (void *)index)) fail("a thread");
        if (pthread_create(&pager, NULL, page_in_all, NULL)) fail("a thread");
        read_all();
        pthread_join(pager, NULL);
        for (uint64_t index = 0; is("receiver") && index < connections; index++)
            pthread_join(receivers[index], NULL);
    }
    double gib = data * passes / 1024.0, receivers_s = 0, took = now() - since;
    for (uint64_t index = 0; index < connections; index++) receivers_s += receiver_s[index];
    printf("%-8s block %7lu run %2lu connections %lu pace %lu: %5.0f MiB/s; processor, s/GiB: pager %.3f "
           "receivers %.3f program %.3f server %.3f\n",
           design, block, run, connections, pace, gib * 1024 / took, pager_s / gib, receivers_s / gib,
           program_s / gib, (server_seconds(server) - before_s) / gib);
}

/* ---- latency ---- */
static void bind_to(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
}

static void wait_for(int descriptor, int timeout_ms)
{
    struct pollfd one = {descriptor, POLLIN, 0};
    while (poll(&one, 1, spin ? 0 : timeout_ms) == 0 && !atomic_load(&ended)) {}
}

static void *page_in_each(void *argument)
{
    if (same < 2) bind_to(same ? 0 : 1);
    for (;;) {
        struct uffd_msg fault;
        wait_for(faults, 50);
        if (atomic_load(&ended)) return argument;
        if (read(faults, &fault, sizeof fault) != sizeof fault) continue;
        uint64_t index = (fault.arg.pagefault.address - (uint64_t)arena) / block;
        ask(index);
        wait_for(sockets[0], -1);
        receive(index);
        copy(arena + index * block, frames_of(index), block);
    }
}

static int compare(const void *left, const void *right)
{
    double one = *(const double *)left, other = *(const double *)right;
    return (one > other) - (one < other);
}

static void latency(void)
{
    static double bare[LATENCY_ROUNDS], paged[LATENCY_ROUNDS];
    if (same < 2) bind_to(0);
    for (uint64_t round = 0; round < LATENCY_ROUNDS; round++) {
        double since = now();
        ask(round * 7919 % blocks);
        wait_for(sockets[0], -1);
        receive(round * 7919 % blocks);
        bare[round] = now() - since;
    }
    pthread_t pager;
    if (pthread_create(&pager, NULL, page_in_each, NULL)) fail("a thread");
    for (uint64_t round = 0; round < LATENCY_ROUNDS; round++) {
        char *bytes = arena + round * 7919 % blocks * block;
        double since = now();
        (void)*(volatile char *)bytes;
        paged[round] = now() - since;
        check(round * 7919 % blocks, bytes);
        if (madvise(bytes, block, MADV_DONTNEED)) fail("madvise");
    }
    atomic_store(&ended, 1);
    pthread_join(pager, NULL);
    qsort(bare, LATENCY_ROUNDS, sizeof *bare, compare);
    qsort(paged, LATENCY_ROUNDS, sizeof *paged, compare);
    double request_us = bare[LATENCY_ROUNDS / 2] * 1e6, page_in_us = paged[LATENCY_ROUNDS / 2] * 1e6;
    printf("latency  block %7lu, the pager %s%s: request %.1f us, page-in %.1f us, above it %.1f us\n", block,
           spin ? "spins" : "sleeps", same == 2 ? "" : same ? ", same processor" : ", other processor",
           request_us, page_in_us, page_in_us - request_us);
}

static void read_arguments(int count, char **words)
{
    struct { const char *name; uint64_t *value; } names[] = {
        {"block", &block}, {"run", &run}, {"connections", &connections}, {"ahead", &ahead},
        {"pace", &pace}, {"data", &data}, {"pool", &pool}, {"passes", &passes}, {"spin", &spin},
        {"same", &same}};
    for (int index = 0; index < count; index++) {
        char *value = strchr(words[index], '=');
        size_t known = 0, all = sizeof names / sizeof *names;
        while (value && known < all && strncmp(words[index], names[known].name, value - words[index])) known++;
        if (!value || known == all) {
            fprintf(stderr, "bare: %s: no such name\n", words[index]);
            exit(2);
        }
        *names[known].value = strtoull(value + 1, NULL, 10);
    }
}

int main(int count, char **words)
{
    int is_latency = count > 1 && !strcmp(words[1], "latency");
    if (count < 3 - is_latency) {
        fprintf(stderr, "usage: bare stream peer|one|receiver|copy [NAME=VALUE ...]\n"
                        "       bare latency [NAME=VALUE ...]\n");
        return 2;
    }
    design = is_latency ? "one" : words[2];
    read_arguments(count - 3 + is_latency, words + 3 - is_latency);
    if (is_latency) run = connections = 1;
    request = run * block;
    blocks = data * MIB / request * run;
    requests = blocks / run * passes;
    resident = pool * MIB / request;
    if (connections < 1 || connections > CONNECTIONS || resident <= 2 * ahead || resident >= blocks / run) {
        fprintf(stderr, "bare: 1 to %d connections; the pool has more than twice what is ahead, and less "
                        "than the data\n", CONNECTIONS);
        return 2;
    }
    memory = mmap(NULL, data * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint64_t place = 0; place < data * MIB / 8; place++) ((uint64_t *)memory)[place] = word(place);
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address;
    pid_t server = start_server(&address);
    for (uint64_t index = 0; index < connections; index++) {
        sockets[index] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(sockets[index], (void *)&address, sizeof address)) fail("connect");
        setsockopt(sockets[index], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
    int private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, rights = PROT_READ | PROT_WRITE;
    arena = mmap(NULL, data * MIB, rights, private, -1, 0);
    frames = mmap(NULL, ahead * request, rights, private, -1, 0);
    blank = calloc(1, request);
    madvise(arena, data * MIB, MADV_NOHUGEPAGE);
    madvise(frames, ahead * request, MADV_NOHUGEPAGE);
    memset(frames, 0, ahead * request);
    if (!is("peer")) {
        faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
        struct uffdio_api api = {.api = UFFD_API, .features = 1 << 16};
        struct uffdio_register ranges[] = {
            {{(uint64_t)arena, data * MIB}, UFFDIO_REGISTER_MODE_MISSING, 0},
            {{(uint64_t)frames, ahead * request}, UFFDIO_REGISTER_MODE_MISSING, 0}};
        if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &ranges[0])
            || (!is("copy") && !is_latency && ioctl(faults, UFFDIO_REGISTER, &ranges[1])))
            fail("userfaultfd");
    }
    if (is_latency) latency();
    else stream(server);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}

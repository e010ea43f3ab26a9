/* What the figures of far memory are measured with.
 *
 * figures serve ADDRESS PORT     a bare peer: sends, or takes, as many bytes as it is asked to
 * figures ask KIND ADDRESS PORT SIZE DEPTH SECONDS [PASSWORD]
 *     asks a peer (`out`, `in`) or a Valkey server, DEPTH requests under way: `get`, `set`; `new`
 *     sets a key that was not there each time; `range`, `write` are GETRANGE and SETRANGE
 * figures scan BYTES             writes its memory from end to end, then reads it twice
 * figures reads BYTES SECONDS    reads words at random places; its data compress three times
 * figures text MB                text of words, which compresses as text does
 *
 * Each prints lines of JSON. What a program reads of its own memory is compared with what it wrote.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A request of the bare peer is as long as one to a Valkey server. */
#define REQUEST 64
#define KEYS 64
/* Bytes of a value whose parts are asked for and written. */
#define VALUE (2 << 20)
#define SAMPLES (1 << 22)
#define PAGE 4096
/* A page-in takes longer, anything else is shorter. */
#define WAITED_NS 8000

struct request {
    char kind;
    uint32_t size;
    char rest[REQUEST - 8];
};

static void fail(const char *what) {
    fprintf(stderr, "figures: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static double processor_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static uint64_t mixed(uint64_t z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void *memory_of(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory)
        fail("malloc");
    return memory;
}

/* False at the end of the stream. */
static int take(int from, void *to, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t got = recv(from, (char *)to + at, bytes - at, 0);
        if (got <= 0)
            return 0;
        at += got;
    }
    return 1;
}

static int give(int to, const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t sent = send(to, (const char *)from + at, bytes - at, MSG_NOSIGNAL);
        if (sent <= 0)
            return 0;
        at += sent;
    }
    return 1;
}

static struct sockaddr_in address_of(const char *address, const char *port) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, address, &place.sin_addr) != 1)
        fail(address);
    return place;
}

static void at_once(int socket) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void *served(void *argument) {
    int client = (int)(intptr_t)argument;
    struct request request;
    char *bytes = memory_of(4 << 20);
    memset(bytes, 7, 4 << 20);
    while (take(client, &request, sizeof request) && request.size <= 4 << 20) {
        int fine = request.kind == 'o' ? give(client, bytes, request.size)
                                       : take(client, bytes, request.size) && give(client, bytes, 8);
        if (!fine)
            break;
    }
    free(bytes);
    close(client);
    return NULL;
}

static void serve(char **words) {
    struct sockaddr_in place = address_of(words[0], words[1]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (void *)&place, sizeof place) || listen(listener, 16))
        fail("bind");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        pthread_t thread;
        if (client < 0)
            fail("accept");
        at_once(client);
        pthread_create(&thread, NULL, served, (void *)(intptr_t)client);
        pthread_detach(thread);
    }
}

static int earlier(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* Prints percentiles of times in ns, which are sorted by it. */
static void percentiles(uint32_t *times, size_t count) {
    qsort(times, count, sizeof *times, earlier);
    for (int part = 50; count && part < 100; part = part < 90 ? 90 : part < 99 ? 99 : 100)
        printf(", \"p%d_us\": %.1f", part, times[(count - 1) * part / 100] / 1e3);
}

/* One way of asking: what is sent, and what must come. */
struct way {
    char kind[8];
    uint32_t size;
    char *bytes;
    char head[32];
};

static unsigned digits(unsigned number) {
    return number < 10 ? 1 : 1 + digits(number / 10);
}

static int ask_one(int to, struct way *way, unsigned number) {
    char line[160];
    if (way->kind[0] == 'o' || way->kind[0] == 'i') {
        struct request request = {.kind = way->kind[0], .size = way->size};
        return give(to, &request, sizeof request) && (way->kind[0] == 'o' || give(to, way->bytes, way->size));
    }
    if (way->kind[0] == 'g') {
        int length = snprintf(line, sizeof line, "*2\r\n$3\r\nGET\r\n$6\r\nfig%03u\r\n", number % KEYS);
        return give(to, line, length);
    }
    /* As the pager's requests: one after the other within a value. */
    unsigned parts_of = VALUE / way->size, from = number % parts_of * way->size;
    if (way->kind[0] == 'r') {
        int length = snprintf(line, sizeof line, "*4\r\n$8\r\nGETRANGE\r\n$6\r\nfig%03u\r\n$%u\r\n%u\r\n$%u\r\n%u\r\n",
                              number / parts_of % KEYS, digits(from), from, digits(from + way->size - 1), from + way->size - 1);
        return give(to, line, length);
    }
    int length;
    if (way->kind[0] == 'w')
        length = snprintf(line, sizeof line, "*4\r\n$8\r\nSETRANGE\r\n$6\r\nfig%03u\r\n$%u\r\n%u\r\n$%u\r\n",
                          number / parts_of % KEYS, digits(from), from, way->size);
    else if (way->kind[0] == 'n')
        length = snprintf(line, sizeof line, "*3\r\n$3\r\nSET\r\n$12\r\nfig%09u\r\n$%u\r\n", number, way->size);
    else
        length = snprintf(line, sizeof line, "*3\r\n$3\r\nSET\r\n$6\r\nfig%03u\r\n$%u\r\n", number % KEYS, way->size);
    struct iovec parts[3] = {{line, length}, {way->bytes, way->size}, {"\r\n", 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)(length + way->size + 2);
}

static void answer(int from, struct way *way) {
    char line[64];
    size_t length;
    switch (way->kind[0]) {
    case 'o':
        length = 0;
        break;
    case 'i':
        length = 8;
        break;
    case 'g':
    case 'r':
        length = strlen(way->head);
        break;
    case 'w':
        length = 10;
        break;
    default:
        length = 5;
    }
    if (!take(from, line, length))
        fail("the answer ends");
    int has_bytes = way->kind[0] == 'g' || way->kind[0] == 'r';
    const char *wanted = has_bytes ? way->head : way->kind[0] == 'w' ? ":2097152\r\n" : "+OK\r\n";
    if (way->kind[0] != 'o' && way->kind[0] != 'i' && memcmp(line, wanted, length)) {
        fprintf(stderr, "figures: not the answer to %s: %.40s\n", way->kind, line);
        exit(1);
    }
    if (way->kind[0] == 'o' || has_bytes)
        if (!take(from, way->bytes, way->size + 2 * has_bytes))
            fail("the answer ends");
}

static void ask(int count, char **words) {
    struct sockaddr_in place = address_of(words[1], words[2]);
    struct way way = {.size = atoi(words[3])};
    unsigned depth = atoi(words[4]), asked = 0, answered = 0;
    uint64_t length = atof(words[5]) * 1e9;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    snprintf(way.kind, sizeof way.kind, "%s", words[0]);
    way.bytes = memory_of(way.size + 2);
    for (uint32_t at = 0; at < way.size; at++)
        way.bytes[at] = mixed(at / 8) >> (at % 8 * 8);
    snprintf(way.head, sizeof way.head, "$%u\r\n", way.size);
    if (connect(server, (void *)&place, sizeof place))
        fail("connect");
    at_once(server);
    if (count > 6) {
        char line[128];
        int said = snprintf(line, sizeof line, "*2\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n", strlen(words[6]), words[6]);
        if (!give(server, line, said) || !take(server, line, 5) || line[0] != '+')
            fail("the password is refused");
    }
    if (strchr("grw", way.kind[0])) {
        struct way set = way;
        strcpy(set.kind, "set");
        if (way.kind[0] != 'g') {
            set.size = VALUE;
            set.bytes = memory_of(VALUE);
            memset(set.bytes, 7, VALUE);
        }
        for (unsigned key = 0; key < KEYS; key++) {
            if (!ask_one(server, &set, key))
                fail("send");
            answer(server, &set);
        }
    }
    uint32_t *times = memory_of(SAMPLES * sizeof *times);
    uint64_t *begun = memory_of(depth * sizeof *begun), begin = now_ns();
    double processor = processor_s();
    for (; asked < depth; asked++) {
        begun[asked] = now_ns();
        if (!ask_one(server, &way, asked))
            fail("send");
    }
    while (answered < asked) {
        answer(server, &way);
        uint64_t now = now_ns();
        if (answered < SAMPLES)
            times[answered] = now - begun[answered % depth];
        answered++;
        if (now - begin < length) {
            begun[asked % depth] = now;
            if (!ask_one(server, &way, asked++))
                fail("send");
        }
    }
    double seconds = (now_ns() - begin) / 1e9;
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"processor_s\": %.3f", (unsigned long long)answered * way.size, seconds,
           processor_s() - processor);
    percentiles(times, answered < SAMPLES ? answered : SAMPLES);
    printf("}\n");
}

static void pass(const char *name, size_t bytes, uint64_t begin) {
    printf("{\"pass\": \"%s\", \"bytes\": %zu, \"seconds\": %.6f}\n", name, bytes, (now_ns() - begin) / 1e9);
    fflush(stdout);
}

static void scan(char **words) {
    size_t count = strtoull(words[0], NULL, 10) / 8;
    uint64_t *memory = memory_of(count * 8);
    uint64_t begin = now_ns(), sum = 0;
    for (size_t at = 0; at < count; at++) {
        memory[at] = at * 0x9E3779B97F4A7C15u + 1;
        sum += memory[at];
    }
    pass("write", count * 8, begin);
    for (int turn = 0; turn < 2; turn++) {
        uint64_t found = 0;
        begin = now_ns();
        for (size_t at = 0; at < count; at++)
            found += memory[at];
        pass(turn ? "read-again" : "read", count * 8, begin);
        if (found != sum) {
            fprintf(stderr, "figures: WRONG: the words add up to another sum\n");
            exit(3);
        }
    }
}

/* A quarter of all bytes are random, the others are zero: LZ4 and LZO make a third of it. */
static uint64_t word_of(size_t at) {
    return at % 8 < 2 ? mixed(at) : 0;
}

static void reads(char **words) {
    size_t count = strtoull(words[0], NULL, 10) / 8, done = 0, waited = 0;
    uint64_t length = atof(words[1]) * 1e9;
    uint64_t *memory = memory_of(count * 8), chance = 1;
    uint32_t *times = memory_of(SAMPLES * sizeof *times);
    for (size_t at = 0; at < count; at++)
        memory[at] = word_of(at);
    uint64_t begin = now_ns(), now = begin;
    double processor = processor_s();
    for (; now - begin < length; done++) {
        size_t at = mixed(chance++) % count;
        uint64_t before = now_ns();
        uint64_t found = *(volatile uint64_t *)&memory[at];
        now = now_ns();
        if (found != word_of(at)) {
            fprintf(stderr, "figures: WRONG: word %zu\n", at);
            exit(3);
        }
        if (now - before > WAITED_NS && waited < SAMPLES)
            times[waited++] = now - before;
    }
    printf("{\"reads\": %zu, \"seconds\": %.6f, \"waited\": %zu, \"processor_s\": %.3f", done, (now - begin) / 1e9, waited,
           processor_s() - processor);
    percentiles(times, waited);
    printf("}\n");
}

static void text(char **words) {
    static char known[1024][12];
    size_t left = strtoull(words[0], NULL, 10) * 1000000;
    uint64_t chance = 1;
    for (unsigned word = 0; word < 1024; word++) {
        unsigned length = 3 + mixed(word) % 8;
        for (unsigned at = 0; at < length; at++)
            known[word][at] = "etaoinshrdlucmwf"[mixed(word * 16 + at) >> 60];
    }
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    for (size_t column = 0; left;) {
        // Common words come often, as in a language: the square of an even chance.
        uint64_t even = mixed(chance++) >> 54;
        char line[16];
        int length = snprintf(line, sizeof line, "%s%c", known[even * (mixed(chance++) >> 54) >> 10], column > 40 ? '\n' : ' ');
        column = column > 40 ? 0 : column + length;
        if ((size_t)length > left)
            length = left;
        left -= fwrite(line, 1, length, stdout);
    }
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[1], "serve"))
        serve(words + 2);
    else if (count >= 8 && !strcmp(words[1], "ask"))
        ask(count - 2, words + 2);
    else if (count == 3 && !strcmp(words[1], "scan"))
        scan(words + 2);
    else if (count == 4 && !strcmp(words[1], "reads"))
        reads(words + 2);
    else if (count == 3 && !strcmp(words[1], "text"))
        text(words + 2);
    else
        return 2;
    return fflush(stdout) ? 1 : 0;
}

/*
 * Allocations of all sizes, files, advice, threads, a fork and every kind of
 * mistake, checked as it goes.
 *
 *     cc memory.c -pthread $(pkg-config --cflags --libs terapage) -o memory
 *     ./memory DIRECTORY            # for a file of its own
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <terapage.h>
#include <unistd.h>

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "line %d: %s (errno %d, %s)\n", __LINE__, #what, errno, tera_error()); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* A call that must fail with an errno and a message that has `text` in it. */
#define FAILS(call, number, text)                     \
    do {                                              \
        errno = 0;                                    \
        CHECK(call);                                  \
        CHECK(errno == (number));                     \
        CHECK(strstr(tera_error(), (text)) != NULL);  \
    } while (0)

enum { MIB = 1 << 20, BLOCK = 16384, SLOTS = 400 };

static void *work(void *seed_of_thread)
{
    unsigned seed = (unsigned)(size_t)seed_of_thread;
    unsigned char *slot[SLOTS] = {0};
    size_t len[SLOTS] = {0};
    for (int step = 0; step < 6000; step++) {
        int at = rand_r(&seed) % SLOTS;
        size_t size = rand_r(&seed) % 20 ? rand_r(&seed) % 5000 : rand_r(&seed) % 400000;
        for (size_t byte = 0; byte < len[at]; byte += 97)
            CHECK(slot[at][byte] == (unsigned char)(at + byte));
        switch (rand_r(&seed) % 4) {
        case 0:
            CHECK(tera_free(slot[at]) == 0);
            slot[at] = NULL;
            len[at] = 0;
            continue;
        case 1: {
            size_t old = len[at] < size ? len[at] : size;
            slot[at] = tera_realloc(slot[at], size);
            CHECK(slot[at]);
            for (size_t byte = 0; byte < old; byte += 97)
                CHECK(slot[at][byte] == (unsigned char)(at + byte));
            break;
        }
        case 2:
            CHECK(tera_free(slot[at]) == 0);
            slot[at] = tera_calloc(size, 1);
            CHECK(slot[at]);
            for (size_t byte = 0; byte < size; byte++)
                CHECK(slot[at][byte] == 0);
            break;
        default:
            CHECK(tera_free(slot[at]) == 0);
            slot[at] = tera_malloc(size);
            CHECK(slot[at] && (size_t)slot[at] % 16 == 0);
        }
        len[at] = size;
        for (size_t byte = 0; byte < size; byte++)
            slot[at][byte] = (unsigned char)(at + byte);
    }
    for (int at = 0; at < SLOTS; at++)
        CHECK(tera_free(slot[at]) == 0);
    return NULL;
}

static int holds(const uint64_t *words, size_t count, uint64_t salt)
{
    for (size_t at = 0; at < count; at++)
        if (words[at] != (at ^ salt))
            return 0;
    return 1;
}

static void fill(uint64_t *words, size_t count, uint64_t salt)
{
    for (size_t at = 0; at < count; at++)
        words[at] = at ^ salt;
}

/* Less budget, and then as much as before. Less holds within moments, not at once. */
static void set_the_budget(const uint64_t *words, size_t count)
{
    struct tera_stats stats;
    FAILS(tera_set_budget(9 * MIB) == -1, EINVAL, "the budget can be");
    FAILS(tera_set_budget(7 * BLOCK) == -1, EINVAL, "the budget can be");
    CHECK(tera_set_budget(2 * MIB) == 0);
    do {
        CHECK(holds(words, count, 5));
        CHECK(tera_stats(&stats) == 0 && stats.budget_bytes == 2 * MIB);
    } while (stats.resident_bytes > 2 * MIB);
    CHECK(tera_set_budget(8 * MIB) == 0);
}

static void mistakes(const char *directory)
{
    int local;
    FAILS(tera_free(&local) == -1, EINVAL, "no allocation");
    FAILS(tera_realloc(&local, 9) == NULL, EINVAL, "no allocation");
    FAILS(tera_sync(&local) == -1, EINVAL, "no mapping");
    FAILS(tera_unmap(&local) == -1, EINVAL, "no mapping");
    FAILS(tera_advise(&local, 1, TERA_RANDOM) == -1, EINVAL, "not all memory of Terapage's");
    for (size_t size = 100; size <= MIB; size += MIB - 100) {
        char *once = tera_malloc(size);
        CHECK(once);
        FAILS(tera_free(once + 16) == -1, EINVAL, "no allocation");
        FAILS(tera_advise(once, size, 99) == -1, EINVAL, "no such advice");
        CHECK(tera_free(once) == 0);
        FAILS(tera_free(once) == -1, EINVAL, "no allocation");
    }
    FAILS(tera_malloc(SIZE_MAX) == NULL, ENOMEM, "no room");
    FAILS(tera_malloc((size_t)1 << 50) == NULL, ENOMEM, "no room");
    FAILS(tera_calloc(SIZE_MAX / 2, 3) == NULL, ENOMEM, "no room");
    FAILS(tera_init(NULL) == -1, EALREADY, "already");
    FAILS(tera_map_file("/no/such/file", 0, 0, TERA_RDONLY, NULL) == NULL, ENOENT, "/no/such/file");
    FAILS(tera_map_file(directory, 0, 0, TERA_RDONLY, NULL) == NULL, EISDIR, directory);
    FAILS(tera_map_file("/dev/null", 0, 0, TERA_RDWR, NULL) == NULL, ENODEV, "/dev/null");
    FAILS(tera_map_file("/proc/self/exe", 0, 0, TERA_RDWR, NULL) == NULL, ETXTBSY, "read and write");
    FAILS(tera_map_file(NULL, 0, 0, TERA_RDONLY, NULL) == NULL, EINVAL, "path is missing");
    FAILS(tera_map_file("/proc/self/exe", 0, 0, 0, NULL) == NULL, EINVAL, "flags");
    FAILS(tera_map_file("/proc/self/exe", 100, 0, TERA_RDONLY, NULL) == NULL, EINVAL, "multiple of 4096");
    FAILS(tera_map_file("/proc/self/exe", (uint64_t)1 << 40, 0, TERA_RDONLY, NULL) == NULL, EINVAL, "nothing to map");
}

/* A file of `len` bytes that nobody else sees, by a name that works while `fd` is open. */
static int new_file(const char *directory, char *name, size_t len)
{
    int fd = open(directory, O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0);
    sprintf(name, "/proc/self/fd/%d", fd);
    unsigned char *bytes = malloc(len);
    for (size_t at = 0; at < len; at++)
        bytes[at] = (unsigned char)(at % 251);
    CHECK(write(fd, bytes, len) == (ssize_t)len);
    free(bytes);
    return fd;
}

static void files(const char *directory)
{
    char name[64];
    size_t len = 20 * MIB + 1234, got = 0;
    int fd = new_file(directory, name, len);

    unsigned char *map = tera_map_file(name, 0, len + 5 * BLOCK, TERA_RDWR, &got);
    CHECK(map && got == len + 5 * BLOCK);
    for (size_t at = 0; at < got; at++)
        CHECK(map[at] == (at < len ? at % 251 : 0));
    for (size_t at = 0; at < got; at += 3 * BLOCK)
        map[at] = 0xee;
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, 3 * BLOCK) == 1 && byte == 3 * BLOCK % 251);
    CHECK(tera_sync(map) == 0);
    CHECK(pread(fd, &byte, 1, 3 * BLOCK) == 1 && byte == 0xee);
    CHECK(lseek(fd, 0, SEEK_END) == (off_t)len);
    map[len - 1] = 0x77;
    CHECK(tera_unmap(map) == 0);
    FAILS(tera_unmap(map) == -1, EINVAL, "no mapping");
    CHECK(pread(fd, &byte, 1, (off_t)len - 1) == 1 && byte == 0x77);

    unsigned char *part = tera_map_file(name, 4096, 0, TERA_RDONLY, &got);
    CHECK(part && got == len - 4096);
    CHECK(part[0] == 4096 % 251 && part[got - 1] == 0x77);
    part[0] = 1;
    CHECK(tera_sync(part) == 0 && tera_unmap(part) == 0);
    CHECK(pread(fd, &byte, 1, 4096) == 1 && byte == 4096 % 251);
    FAILS(tera_map_file(name, 32 * MIB, 0, TERA_RDONLY, NULL) == NULL, EINVAL, "nothing to map");
    close(fd);

    /* Until there are no more; then all of them go. */
    fd = new_file(directory, name, 5000);
    unsigned char *many[300];
    int count = 0;
    while (count < 300 && (many[count] = tera_map_file(name, 0, 0, TERA_RDONLY, NULL)) != NULL)
        count++;
    CHECK(errno == ENFILE && strstr(tera_error(), "too many files") && count > 200);
    while (count-- > 0)
        CHECK(many[count][4999] == 4999 % 251 && tera_unmap(many[count]) == 0);
    close(fd);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(strcmp(tera_error(), "") == 0);
    struct tera_stats stats;
    FAILS(tera_stats(&stats) == -1, EINVAL, "not been started");
    struct tera_options options = TERA_OPTIONS_INIT;
    options.policy = "none";
    FAILS(tera_init(&options) == -1, EINVAL, "policy");
    options.policy = NULL;
    options.size = 8;
    FAILS(tera_init(&options) == -1, EINVAL, "sizeof");
    options.size = sizeof options;
    options.address_space = 1;
    FAILS(tera_init(&options) == -1, EINVAL, "address_space");
    options.address_space = 0;
    options.store = "";
    FAILS(tera_init(&options) == -1, EINVAL, "empty");
    options.store = NULL;
    options.memory = (uint64_t)1 << 60;
    FAILS(tera_init(&options) == -1, EINVAL, "more than");

    /* The environment's options: no tera_init. */
    setenv("TERAPAGE_MEMORY", "8M", 1);
    setenv("TERAPAGE_STORE", argv[1], 1);
    setenv("TERAPAGE_BLOCK", "16K", 1);
    size_t count = 24 * MIB / 8;
    uint64_t *words = teramalloc(24 * MIB);
    if (!words && (errno == EPERM || errno == ENOSYS)) {
        printf("SKIPPED: %s\n", tera_error());
        return 0;
    }
    CHECK(words);
    fill(words, count, 5);
    CHECK(holds(words, count, 5));
    CHECK(tera_stats(&stats) == 0);
    CHECK(stats.budget_bytes == 8 * MIB && stats.block_bytes == BLOCK);
    CHECK(stats.resident_peak_bytes <= 8 * MIB && stats.major_faults > 0);

    CHECK(tera_advise(words, 24 * MIB, TERA_RANDOM) == 0 && holds(words, count, 5));
    set_the_budget(words, count);
    CHECK(tera_advise(words + 999, 9 * MIB, TERA_SEQUENTIAL) == 0 && holds(words, count, 5));
    CHECK(tera_advise(words, 24 * MIB, TERA_DONE_WITH) == 0 && holds(words, count, 5));
    CHECK(tera_advise(words, 24 * MIB, TERA_WILL_NEED) == 0 && holds(words, count, 5));

    pthread_t thread[3];
    for (size_t at = 0; at < 3; at++)
        CHECK(pthread_create(&thread[at], NULL, work, (void *)(at + 1)) == 0);
    /* While they work: forks, whose children use all of it. */
    for (uint64_t round = 0; round < 3; round++) {
        fill(words, count, round);
        fflush(NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(holds(words, count, round));
            fill(words, count, 77);
            uint64_t *more = tera_malloc(12 * MIB);
            CHECK(more);
            fill(more, 12 * MIB / 8, 78);
            CHECK(holds(words, count, 77) && holds(more, 12 * MIB / 8, 78));
            work((void *)9);
            CHECK(tera_free(more) == 0 && tera_free(words) == 0);
            _exit(0);
        }
        fill(words, count, 100 + round);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(holds(words, count, 100 + round));
    }
    for (size_t at = 0; at < 3; at++)
        pthread_join(thread[at], NULL);
    mistakes(argv[1]);
    files(argv[1]);
    CHECK(holds(words, count, 102));
    words = tera_realloc(words, 40 * MIB);
    CHECK(words && holds(words, count, 102));
    terafree(words);
    CHECK(tera_stats(&stats) == 0 && stats.resident_peak_bytes <= 8 * MIB);
    printf("ok\n");
    return 0;
}

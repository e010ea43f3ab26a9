/* A program that limits its own addresses and data: argument 1 is the limit in MiB. What it asks
 * for beyond that it does not get, and goes on. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PIECES 4096

static char *pieces[PIECES];

/* Asks for memory, a MiB less a bit at a time, until there is no more; says how much it was. */
static size_t fill_up(void) {
    size_t n = 0;
    for (; n < PIECES; n++) {
        errno = 0;
        pieces[n] = malloc(MIB - 64);
        if (pieces[n] == NULL)
            break;
        fill(pieces[n], MIB - 64, n);
    }
    CHECK(errno == ENOMEM);
    return n * MIB;
}

static void give_back(size_t bytes) {
    for (size_t i = 0; i < bytes / MIB; i++) {
        CHECK(differing(pieces[i], MIB - 64, i) == 0);
        free(pieces[i]);
    }
}

static void is_limited(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit limit;
    struct rlimit64 limit64;
    CHECK(getrlimit(resource, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
    CHECK(getrlimit64(resource, &limit64) == 0 && limit64.rlim_cur == soft && limit64.rlim_max == hard);
    CHECK(prlimit(0, resource, NULL, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
    CHECK(prlimit64(getpid(), resource, NULL, &limit64) == 0 && limit64.rlim_cur == soft && limit64.rlim_max == hard);
}

/* Most of the limit is to be had, and no more. */
static void holds(rlim_t soft) {
    size_t bytes = fill_up();
    if (bytes <= soft / 4 * 3 || bytes >= soft)
        fprintf(stderr, "%zu MiB of %zu\n", bytes / MIB, (size_t)soft / MIB);
    CHECK(bytes > soft / 4 * 3 && bytes < soft);
    CHECK(malloc(soft) == NULL && errno == ENOMEM);
    CHECK(calloc(2, soft) == NULL && errno == ENOMEM);
    CHECK(mmap(NULL, soft, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    give_back(bytes);
}

/* Small pieces that move are all that counts: as many as would fill the limit, if each left a
 * rest. */
static void small_moves(rlim_t soft) {
    for (size_t i = 0; i < soft / 8192 + 1000;) {
        char *all = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(all != MAP_FAILED);
        for (char *at = all; at < all + MIB; at += 8192, i++) {
            *at = 7;
            char *moved = mremap(at, 4096, 8192, MREMAP_MAYMOVE);
            CHECK(moved != MAP_FAILED && moved[0] == 7 && moved[8191] == 0);
            CHECK(munmap(moved, 8192) == 0);
        }
        CHECK(munmap(all, MIB) == 0);
    }
}

static size_t __attribute__((noinline)) deep(size_t bytes) {
    volatile char here[4096];
    here[0] = here[4095] = (char)bytes;
    return bytes <= sizeof here ? 1 : deep(bytes - sizeof here) + (size_t)(here[0] == here[4095]);
}

static void *thread(void *argument) {
    char *at = malloc(3 * MIB);
    CHECK(at != NULL);
    fill(at, 3 * MIB, 7);
    CHECK(differing(at, 3 * MIB, 7) == 0 && deep(MIB) > 0);
    free(at);
    return argument;
}

/* What runs on: stacks, threads, mappings and objects that grow within the limit. */
static void goes_on(rlim_t soft) {
    CHECK(deep(4 * MIB) > 0);
    pthread_t begun;
    CHECK(pthread_create(&begun, NULL, thread, NULL) == 0 && pthread_join(begun, NULL) == 0);
    size_t part = soft / 10 * 6 / MIB * MIB;
    char *at = malloc(part), *behind = malloc(2 * MIB);
    CHECK(at != NULL && behind != NULL);
    fill(at, part, 8);
    at = realloc(at, part + 8 * MIB);
    CHECK(at != NULL && differing(at, part, 8) == 0);
    CHECK(realloc(at, soft) == NULL && errno == ENOMEM);
    CHECK(differing(at, part, 8) == 0);
    free(at);
    free(behind);
    at = mmap(NULL, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fill(at, part, 9);
    CHECK(mremap(at, part, soft, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    CHECK(differing(at, part, 9) == 0 && munmap(at, part) == 0);
}

static void ended_well(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Children of fork, of exec and of posix_spawn are limited alike. */
static void children(char *program, int resource, rlim_t soft, rlim_t hard) {
    pid_t child = fork();
    if (child == 0) {
        is_limited(resource, soft, hard);
        holds(soft);
        _exit(0);
    }
    ended_well(child);
    char words[3][32];
    snprintf(words[0], 32, "%d", resource);
    snprintf(words[1], 32, "%llu", (unsigned long long)soft);
    snprintf(words[2], 32, "%llu", (unsigned long long)hard);
    char *argv[] = {program, "child", words[0], words[1], words[2], NULL};
    child = fork();
    if (child == 0) {
        execv(program, argv);
        _exit(9);
    }
    ended_well(child);
    CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
    ended_well(child);
}

/* A hard limit is for good. */
static void lower_for_good(int resource, rlim_t soft, rlim_t hard) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {soft, soft + MIB};
        CHECK(setrlimit(resource, &limit) == 0);
        is_limited(resource, soft, soft + MIB);
        CHECK(getuid() != 0 || setuid(65534) == 0);
        limit.rlim_max = hard;
        CHECK(setrlimit(resource, &limit) == -1 && errno == EPERM);
        is_limited(resource, soft, soft + MIB);
        limit.rlim_cur = limit.rlim_max = soft + MIB;
        CHECK(setrlimit(resource, &limit) == 0);
        is_limited(resource, soft + MIB, soft + MIB);
        _exit(0);
    }
    ended_well(child);
}

static void limited(char *program, int resource, size_t mib) {
    struct rlimit before, old, limit;
    pthread_t begun;
    CHECK(getrlimit(resource, &before) == 0);
    if (before.rlim_cur != RLIM_INFINITY || before.rlim_max != RLIM_INFINITY)
        fprintf(stderr, "the test needs to be without limits\n");
    CHECK(before.rlim_cur == RLIM_INFINITY && before.rlim_max == RLIM_INFINITY);
    limit = (struct rlimit){mib * MIB, before.rlim_max};
    CHECK(setrlimit(resource, &limit) == 0);
    is_limited(resource, mib * MIB, before.rlim_max);
    goes_on(mib * MIB);
    /* Later the heaps keep nearly all that the limit allows, and mappings have what is left. */
    if (resource == RLIMIT_DATA)
        small_moves(mib * MIB);
    holds(mib * MIB);
    CHECK(pthread_create(&begun, NULL, thread, NULL) == 0 && pthread_join(begun, NULL) == 0);
    children(program, resource, mib * MIB, before.rlim_max);
    lower_for_good(resource, mib * MIB, before.rlim_max);

    limit = (struct rlimit){2 * MIB, MIB};
    CHECK(setrlimit(resource, &limit) == -1 && errno == EINVAL);
    is_limited(resource, mib * MIB, before.rlim_max);

    /* Higher, lower than what is in use, and none again. */
    limit = (struct rlimit){3 * mib * MIB, before.rlim_max};
    CHECK(prlimit(0, resource, &limit, &old) == 0 && old.rlim_cur == mib * MIB && old.rlim_max == before.rlim_max);
    char *at = malloc(mib * MIB);
    CHECK(at != NULL);
    fill(at, mib * MIB, 5);
    limit.rlim_cur = mib / 2 * MIB;
    CHECK(setrlimit(resource, &limit) == 0);
    CHECK(malloc(mib * MIB) == NULL && errno == ENOMEM);
    CHECK(differing(at, mib * MIB, 5) == 0);
    CHECK(setrlimit(resource, &before) == 0);
    is_limited(resource, RLIM_INFINITY, RLIM_INFINITY);
    char *more = malloc(mib * MIB);
    CHECK(more != NULL);
    fill(more, mib * MIB, 6);
    CHECK(differing(at, mib * MIB, 5) == 0 && differing(more, mib * MIB, 6) == 0);
    free(more);
    free(at);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    /* Threads share their memory: the C library would reserve 64 MiB for each. */
    mallopt(M_ARENA_MAX, 1);
    if (strcmp(argv[1], "child") == 0) {
        CHECK(argc == 5);
        is_limited(atoi(argv[2]), strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
        holds(strtoull(argv[3], NULL, 10));
        return 0;
    }
    size_t mib = strtoull(argv[1], NULL, 10);
    int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            limited(argv[0], resources[i], mib);
            _exit(0);
        }
        ended_well(child);
        puts(i == 0 ? "addresses: ok" : "data: ok");
    }
    return 0;
}

// Maps a file in parts, as linkers and model loaders do: parts that overlap, shared, private, and
// private ones that the program changes. Parts are unmapped while others stay.
//
//   mapped_parts parts FILE SEED ROUNDS
//   mapped_parts write FILE SEED COUNT    writes COUNT words where no part is changed
//
// Memory beside them shows what must be there. Once the file was opened for writing, by this
// process or another, all parts must be the kernel's mappings again.
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
// No block of these tests is larger.
#define CHUNK ((size_t)64 << 10)
#define PARTS 6

extern char **environ;
static uint64_t state;

static uint64_t random_below(uint64_t n) {
    return word(1, state++) % n;
}

enum kind { SHARED, PRIVATE, CHANGED };

// A part of the file from `offset` on. `own` has the bytes of one that the program changes.
struct part {
    char *at, *own;
    size_t offset, len;
    enum kind kind;
};

static const char *path;
// The file's bytes.
static char *right;
static size_t all;
static struct part parts[PARTS];

static const char *bytes_of(const struct part *part) {
    return part->own ? part->own : right + part->offset;
}

static void same(const struct part *part, size_t from, size_t size) {
    if (memcmp(part->at + from, bytes_of(part) + from, size) == 0) return;
    for (size_t i = from; i < from + size; i++) {
        if (part->at[i] != bytes_of(part)[i]) {
            fprintf(stderr, "other bytes in page %zu of a part of %zu pages from %zu, kind %d\n", i / PAGE,
                    part->len / PAGE, part->offset / PAGE, part->kind);
            break;
        }
    }
    CHECK(!"other bytes");
}

static void map_part(struct part *part, int file) {
    size_t pages = all / PAGE;
    part->offset = random_below(pages - MIB / PAGE) * PAGE;
    part->len = all / PAGE * PAGE - part->offset;
    // Most have a length of their own; the others go as far as the file.
    if (random_below(3)) part->len = MIB + random_below((part->len - MIB) / PAGE + 1) * PAGE;
    part->kind = random_below(3);
    int prot = part->kind == CHANGED ? PROT_READ | PROT_WRITE : PROT_READ;
    int fd = random_below(2) ? open(path, O_RDONLY | O_CLOEXEC) : dup(file);
    CHECK(fd >= 0);
    // What is in the page cache would be left to the kernel.
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    part->at = mmap(NULL, part->len, prot, part->kind == SHARED ? MAP_SHARED : MAP_PRIVATE, fd, part->offset);
    CHECK(part->at != MAP_FAILED && close(fd) == 0);
    part->own = NULL;
    if (part->kind == CHANGED) {
        part->own = malloc(part->len);
        CHECK(part->own != NULL);
        memcpy(part->own, right + part->offset, part->len);
    }
}

static void unmap_part(struct part *part) {
    CHECK(part->len == 0 || munmap(part->at, part->len) == 0);
    free(part->own);
    *part = (struct part){0};
}

// Cuts pages off one end of a part.
static void cut(struct part *part) {
    size_t size = (1 + random_below(part->len / PAGE)) * PAGE;
    if (size == part->len) return unmap_part(part);
    part->len -= size;
    if (random_below(2)) {
        CHECK(munmap(part->at + part->len, size) == 0);
        return;
    }
    CHECK(munmap(part->at, size) == 0);
    part->at += size, part->offset += size;
    if (part->own) memmove(part->own, part->own + size, part->len);
}

// The program changes every second MiB of the file privately, and others write to the rest, but not
// near its ends: a block that is changed in one page is private as a whole.
static void change(struct part *part) {
    size_t at = random_below(part->len);
    if (part->own == NULL || (part->offset + at) / MIB % 2) return;
    size_t left = MIB - (part->offset + at) % MIB, size = 1 + random_below(3 * PAGE);
    if (size > left) size = left;
    if (size > part->len - at) size = part->len - at;
    memset(part->at + at, (int)random_below(256), size);
    memcpy(part->own + at, part->at + at, size);
}

static void advise(struct part *part) {
    static const int kinds[] = {MADV_WILLNEED, MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL, MADV_DONTNEED};
    size_t from = random_below(part->len / PAGE) * PAGE, size = (1 + random_below((part->len - from) / PAGE)) * PAGE;
    int advice = kinds[random_below(5)];
    CHECK(madvise(part->at + from, size, advice) == 0);
    if (advice == MADV_DONTNEED && part->own) memcpy(part->own + from, right + part->offset + from, size);
}

static void write_words(int fd, uint64_t seed, size_t count) {
    struct stat status;
    CHECK(fstat(fd, &status) == 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = word(seed, i), room = MIB - 2 * CHUNK - 8;
        size_t unit = value % ((size_t)status.st_size / MIB / 2), at = (2 * unit + 1) * MIB + CHUNK + word(seed + 1, i) % room;
        CHECK(pwrite(fd, &value, 8, (off_t)at) == 8);
    }
}

// How many bytes of a range are mapped from the file.
static size_t mapped_from_file(const char *from, size_t len) {
    char line[4400];
    size_t found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        size_t at, to, first = (size_t)from, end = first + len;
        if (sscanf(line, "%zx-%zx", &at, &to) != 2 || strstr(line, path) == NULL) continue;
        if (at < first) at = first;
        if (to > end) to = end;
        if (at < to) found += to - at;
    }
    fclose(maps);
    return found;
}

static void write_to_file(const char *program) {
    uint64_t seed = word(2, state++);
    size_t count = 1 + random_below(30);
    if (random_below(2)) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        write_words(fd, seed, count);
        CHECK(close(fd) == 0);
    } else {
        char numbers[2][32];
        snprintf(numbers[0], sizeof numbers[0], "%llu", (unsigned long long)seed);
        snprintf(numbers[1], sizeof numbers[1], "%zu", count);
        char *words[] = {(char *)program, "write", (char *)path, numbers[0], numbers[1], NULL};
        pid_t other;
        int status;
        CHECK(posix_spawn(&other, program, NULL, NULL, words, environ) == 0);
        CHECK(waitpid(other, &status, 0) == other && status == 0);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    for (size_t at = MIB; at < all; at += 2 * MIB) {
        // Words that were written at the ends of what may be written are within the MiB.
        size_t size = all - at < MIB ? all - at : MIB;
        CHECK(pread(fd, right + at, size, (off_t)at) == (ssize_t)size);
        for (struct part *part = parts; part < parts + PARTS; part++) {
            if (part->own == NULL) continue;
            size_t from = at > part->offset ? at : part->offset, end = part->offset + part->len;
            if (at + size < end) end = at + size;
            if (from < end) memcpy(part->own + from - part->offset, right + from, end - from);
        }
    }
    CHECK(close(fd) == 0);
    for (struct part *part = parts; part < parts + PARTS; part++) {
        size_t found = mapped_from_file(part->at, part->len);
        // What was changed stays memory.
        CHECK(part->own || found == part->len);
    }
}

static void one_round(const char *program) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && fdatasync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    for (struct part *part = parts; part < parts + PARTS; part++) map_part(part, file);
    for (int i = 0; i < 60; i++) {
        struct part *part = &parts[random_below(PARTS)];
        if (part->len == 0) continue;
        size_t from = random_below(part->len), what = random_below(16);
        if (what < 8) {
            size_t most = part->len - from;
            same(part, from, 1 + random_below(most < 3 * MIB ? most : 3 * MIB));
        } else if (what < 12) {
            change(part);
        } else if (what < 14) {
            advise(part);
        } else if (what < 15) {
            cut(part);
        } else if (random_below(6) == 0) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                same(part, from, part->len - from);
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        }
    }
    CHECK(close(file) == 0);
    if (random_below(2)) write_to_file(program);
    for (struct part *part = parts; part < parts + PARTS; part++) same(part, 0, part->len);
    for (struct part *part = parts; part < parts + PARTS; part++) unmap_part(part);
}

int main(int count, char **arguments) {
    CHECK(count == 5);
    path = arguments[2];
    uint64_t seed = strtoull(arguments[3], NULL, 10);
    if (strcmp(arguments[1], "write") == 0) {
        int fd = open(path, O_RDWR);
        CHECK(fd >= 0);
        write_words(fd, seed, (size_t)atoi(arguments[4]));
        return 0;
    }
    state = seed << 32;
    wait_if_asked();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    all = (size_t)status.st_size;
    right = malloc(all);
    CHECK(right != NULL);
    for (size_t done = 0; done < all;) {
        ssize_t got = pread(fd, right + done, all - done, (off_t)done);
        CHECK(got > 0);
        done += (size_t)got;
    }
    CHECK(close(fd) == 0);
    for (int round = atoi(arguments[4]); round > 0; round--) one_round(arguments[0]);
    puts("ok");
    return 0;
}

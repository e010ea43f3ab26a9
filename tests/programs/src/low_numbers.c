/* A program whose one thread closes descriptors that it did not open, in several ways, and opens
 * files under the free numbers, while others read memory that is paged, map a file, and fork.
 * Each file must stay open, and be the one that was opened.
 *
 * usage: low_numbers MIB ROUNDS SEED FILE OWN
 *   FILE   is mapped; OWN: directory for files of the program
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { FILES = 6, KEPT = 500, LOOP = 64 };

static atomic_int over;
static char *memory;
static size_t memory_bytes;
static atomic_long forks, maps;

static unsigned long draw(unsigned long *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Some page of the memory is as it was filled. */
static void look(unsigned long *state) {
    size_t at = draw(state) % (memory_bytes / 4096) * 4096;
    CHECK(*(size_t *)(memory + at) == at);
}

static void *reads(void *seed) {
    unsigned long state = (unsigned long)seed;
    while (!over)
        look(&state);
    return NULL;
}

static void *begets(void *seed) {
    unsigned long state = (unsigned long)seed;
    while (!over) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            look(&state);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        forks++;
    }
    return NULL;
}

static void *maps_file(void *seed) {
    unsigned long state = (unsigned long)seed;
    struct stat stat;
    CHECK(fstat(KEPT, &stat) == 0);
    while (!over) {
        char *at = mmap(NULL, stat.st_size, PROT_READ, MAP_PRIVATE, KEPT, 0);
        CHECK(at != MAP_FAILED);
        for (int count = 0; count < 8; count++) {
            size_t page = draw(&state) % (stat.st_size / 4096) * 4096;
            CHECK(*(size_t *)(at + page) == page);
        }
        CHECK(munmap(at, stat.st_size) == 0);
        maps++;
    }
    return NULL;
}

static void close_others(unsigned long *state, int null) {
    switch (draw(state) % 5) {
    case 0:
        CHECK(close_range(3, KEPT - 1, 0) == 0);
        break;
    case 1:
        CHECK(close_range(KEPT + 2, UINT_MAX, 0) == 0);
        CHECK(close_range(3, KEPT - 1, 0) == 0);
        break;
    case 2:
        for (int number = 3; number < LOOP; number++)
            close(number);
        break;
    case 3: {
        int number = 3 + draw(state) % 4;
        CHECK(dup2(null, number) == number);
        break;
    }
    case 4:
        closefrom(KEPT + 2);
        for (int number = LOOP; number >= 3; number--)
            close(number);
    }
}

static void check_file(int number, ino_t inode, int name) {
    struct stat stat;
    int text;
    CHECK(fstat(number, &stat) == 0);
    CHECK(stat.st_ino == inode);
    CHECK(pread(number, &text, sizeof(text), 0) == sizeof(text) && text == name);
    CHECK(lseek(number, 0, SEEK_CUR) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 6);
    memory_bytes = (size_t)atol(argv[1]) << 20;
    long rounds = atol(argv[2]);
    unsigned long state = atol(argv[3]) * 2 + 1;
    memory = malloc(memory_bytes);
    CHECK(memory != NULL);
    for (size_t at = 0; at < memory_bytes; at += 4096)
        *(size_t *)(memory + at) = at;
    int file = open(argv[4], O_RDONLY), null = KEPT + 1;
    CHECK(file >= 0 && dup2(file, KEPT) == KEPT && close(file) == 0);
    file = open("/dev/null", O_RDWR);
    CHECK(file >= 0 && dup2(file, null) == null && close(file) == 0);
    char names[FILES][PATH_MAX];
    ino_t inodes[FILES];
    for (int name = 0; name < FILES; name++) {
        struct stat stat;
        snprintf(names[name], PATH_MAX, "%s/%d", argv[5], name);
        file = open(names[name], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(file >= 0 && write(file, &name, sizeof(name)) == sizeof(name));
        CHECK(fstat(file, &stat) == 0 && close(file) == 0);
        inodes[name] = stat.st_ino;
    }
    pthread_t threads[4];
    void *(*works[])(void *) = {reads, reads, begets, maps_file};
    for (int thread = 0; thread < 4; thread++) {
        unsigned long seed = draw(&state) | 1;
        CHECK(pthread_create(&threads[thread], NULL, works[thread], (void *)seed) == 0);
    }
    for (long round = 0; round < rounds || forks < 20 || maps < 20; round++) {
        int numbers[FILES], count = 1 + draw(&state) % FILES;
        close_others(&state, null);
        for (int name = 0; name < count; name++)
            CHECK((numbers[name] = open(names[name], O_RDWR)) >= 0);
        for (int look = draw(&state) % 200; look >= 0; look--)
            for (int name = 0; name < count; name++)
                check_file(numbers[name], inodes[name], name);
        for (int name = 0; name < count && draw(&state) % 2; name++)
            CHECK(close(numbers[name]) == 0);
    }
    over = 1;
    for (int thread = 0; thread < 4; thread++)
        CHECK(pthread_join(threads[thread], NULL) == 0);
    printf("%ld forks, %ld maps\n", (long)forks, (long)maps);
    return 0;
}

/* A family of processes with memory that is larger than its budget, told apart byte for byte.
 *
 * family MIB
 *
 * Fills its memory, says "ready", and obeys letters on standard input: `s` forks a child that only
 * sleeps, `r` one that reads its parent's memory all the time, `w` one that first writes all of it
 * anew; it says "forked PID" each time. `e` has all children look at all they have, and end, and
 * says "ended" with the number of those that were not right. `x` ends it at once, without its
 * children, which end at SIGUSR1. `q` looks at all memory, says "good", and ends.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / 8)
#define CHILDREN 64

static uint64_t *memory;
static size_t pages;
static pid_t children[CHILDREN];
static int count;

static uint64_t word_of(size_t page, uint64_t version, size_t word) {
    uint64_t z = (page << 20 | word) + version * 0x9E3779B97F4A7C15u + 1;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static volatile sig_atomic_t is_over;

static void end(int number) {
    (void)number;
    is_over = 1;
}

static void fill(uint64_t version) {
    for (size_t page = 0; page < pages; page++)
        for (size_t word = 0; word < WORDS; word++)
            memory[page * WORDS + word] = word_of(page, version, word);
}

static void check(size_t page, uint64_t version) {
    for (size_t word = 0; word < WORDS; word++)
        if (memory[page * WORDS + word] != word_of(page, version, word)) {
            printf("WRONG page %zu word %zu\n", page, word);
            fflush(stdout);
            _exit(3);
        }
}

static void work(char how) {
    uint64_t version = 1, random = (uint64_t)getpid() * 0x9E3779B97F4A7C15u + 1;
    if (how == 'w')
        fill(version = 1000);
    while (!is_over) {
        for (int i = 0; how != 's' && i < 16; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            check(random % pages, version);
        }
        usleep(2000);
    }
    for (size_t page = 0; how != 's' && page < pages; page++)
        check(page, version);
    if (how != 's') {
        printf("child good\n");
        fflush(stdout);
    }
    _exit(0);
}

static void start(char how) {
    pid_t child = fork();
    if (child == 0)
        work(how);
    if (child > 0)
        children[count++] = child;
    printf("forked %d\n", (int)child);
    fflush(stdout);
}

static void end_all(void) {
    int bad = 0;
    for (int i = 0; i < count; i++)
        kill(children[i], SIGUSR1);
    for (int i = 0; i < count; i++) {
        int status = 1;
        bad += waitpid(children[i], &status, 0) != children[i] || status != 0;
    }
    count = 0;
    printf("ended %d\n", bad);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    pages = strtoul(argv[1], NULL, 10) * ((1 << 20) / PAGE);
    signal(SIGUSR1, end);
    memory = malloc(pages * PAGE);
    if (!memory)
        return 2;
    fill(1);
    printf("ready\n");
    fflush(stdout);
    char how = 0;
    while (read(0, &how, 1) == 1 && how != 'q') {
        if (how == 'x')
            return 0;
        if (how == 'e')
            end_all();
        else if (how != '\n' && count < CHILDREN)
            start(how);
    }
    for (size_t page = 0; page < pages; page++)
        check(page, 1);
    printf("good\n");
    return 0;
}

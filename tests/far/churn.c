/* Memory that is larger than its budget, and told apart byte for byte.
 *
 * churn MIB PASSES [fork | exec | vanish | more | become PROGRAM]
 *
 * Fills its memory, says "ready", and waits for a line on standard input. Each pass then checks
 * every page, groups of them in no order, and writes it anew. With `fork`, a child does the same
 * beside it with what it had at the fork; with `exec`, a child executes another program at once;
 * with `vanish` the parent ends at once, and the child goes on alone. With `more` it fills half at
 * first, and after the line the rest, says "more", and waits again. With `become` it executes the
 * program, which fails, says "stays", waits for a line, and after its passes executes sleep(1).
 * SIGUSR1 ends the passes. At the end it says how long it waited for a page at most.
 */
#include <libintl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / 8)
/* Pages that are checked one after the other. */
#define GROUP 16

static uint64_t *memory;
static size_t pages;

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

/* The longest time that a page has taken, ms. */
static double longest;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void took_since(double begun) {
    double took = now_ms() - begun;
    longest = took > longest ? took : longest;
}

static void fill(size_t page, uint64_t version) {
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

static void wait_for_a_line(void) {
    char c = 0;
    while (read(0, &c, 1) == 1 && c != '\n') {
    }
}

static void passes(int count, uint64_t version, uint64_t step) {
    for (int pass = 0; pass < count && !is_over; pass++) {
        for (size_t i = 0; i < pages; i++) {
            size_t group = (i / GROUP * 2654435761u + pass) % (pages / GROUP);
            double begun = now_ms();
            check(group * GROUP + i % GROUP, version);
            took_since(begun);
        }
        for (size_t page = 0; page < pages; page++) {
            double begun = now_ms();
            fill(page, version + step);
            took_since(begun);
        }
        version += step;
    }
    for (size_t page = 0; page < pages; page++)
        check(page, version);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    pages = strtoul(argv[1], NULL, 10) * ((1 << 20) / PAGE);
    int count = atoi(argv[2]);
    const char *how = argc > 3 ? argv[3] : "";
    /* The C library looks at its note of this whenever it writes of an error: it is paged, too. */
    bindtextdomain("churn", "/");
    signal(SIGUSR1, end);
    memory = malloc(pages * PAGE);
    if (!memory)
        return 2;
    size_t first = strcmp(how, "more") ? pages : pages / 2;
    for (size_t page = 0; page < first; page++)
        fill(page, 1);
    printf("ready\n");
    fflush(stdout);
    wait_for_a_line();
    if (first < pages) {
        for (size_t page = first; page < pages; page++)
            fill(page, 1);
        printf("more\n");
        fflush(stdout);
        wait_for_a_line();
    }
    if (!strcmp(how, "become")) {
        execl(argv[4], argv[4], (char *)NULL);
        printf("stays\n");
        fflush(stdout);
        wait_for_a_line();
        passes(count, 1, 1);
        execl("/bin/sleep", "sleep", "100", (char *)NULL);
        return 5;
    }
    if (*how && first == pages) {
        pid_t child = fork();
        if (child < 0)
            return 2;
        if (!strcmp(how, "exec")) {
            if (child == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(4);
            }
        } else if (child == 0) {
            passes(count, 1, 1000);
            printf("child good\n");
            return 0;
        } else if (!strcmp(how, "vanish")) {
            printf("gone\n");
            return 0;
        }
        passes(count, 1, 1);
        int status = 1;
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("child: status %d\n", status);
            return 4;
        }
    } else {
        passes(count, 1, 1);
    }
    printf("good, longest %.0f ms\n", longest);
    return 0;
}

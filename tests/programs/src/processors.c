/* A thread that touches scattered pages, which the pager may bind to one processor for a while.
 * The program must not see that: neither by asking for its processors, nor in threads and processes
 * that it begins meanwhile. Standard error says what was bound.
 *
 * usage: processors MIB
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE 4096
#define TOUCHES 3000

extern char **environ;

static cpu_set_t all;
static char *data;
static size_t pages;
static uint64_t state = 1;
static long bound;

/* The processors of the calling thread, by the instruction: what the kernel has. */
static cpu_set_t bare(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
#ifdef __x86_64__
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "0"(SYS_sched_getaffinity), "D"(0), "S"(sizeof set), "d"(&set) : "rcx", "r11", "memory");
    CHECK(answer > 0);
#else
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof set, &set) > 0);
#endif
    return set;
}

/* Touches scattered pages, and checks them. */
static void touch(void) {
    for (int i = 0; i < TOUCHES; i++) {
        state = word(state, (uint64_t)i);
        size_t page = state % pages;
        CHECK(*(uint64_t *)(data + page * PAGE) == word(7, page));
    }
    cpu_set_t now = bare();
    bound += CPU_COUNT(&now) < CPU_COUNT(&all);
}

static void *begun(void *set) {
    *(cpu_set_t *)set = bare();
    return NULL;
}

/* The line that a command prints. */
static void read_line(char *line, size_t size, const char *command) {
    FILE *from = popen(command, "r");
    CHECK(from && fgets(line, (int)size, from));
    CHECK(pclose(from) == 0);
}

static int status_of(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    all = bare();
    char first[256], line[256], script[512];
    const char *command = "grep Cpus_allowed_list /proc/self/status";
    read_line(first, sizeof first, command);
    snprintf(script, sizeof script, "test \"$(%s)\" = \"%.*s\"", command, (int)strcspn(first, "\n"), first);

    pages = (size_t)atoi(argv[1]) * 256;
    data = malloc(pages * PAGE);
    CHECK(data);
    for (size_t page = 0; page < pages; page++)
        fill(data + page * PAGE, PAGE, page), *(uint64_t *)(data + page * PAGE) = word(7, page);

    for (int round = 0; round < 4; round++) {
        cpu_set_t set;
        touch();
        CHECK(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_EQUAL(&set, &all));
        touch();
        CPU_ZERO(&set);
        CHECK(syscall(SYS_sched_getaffinity, 0, sizeof set, &set) > 0 && CPU_EQUAL(&set, &all));
        touch();
        CHECK(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 && CPU_EQUAL(&set, &all));
        touch();
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, begun, &set) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(CPU_EQUAL(&set, &all));
        touch();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            cpu_set_t its = bare();
            _exit(CPU_EQUAL(&its, &all) ? 0 : 1);
        }
        CHECK(status_of(child) == 0);
        touch();
        child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", script, (char *)NULL);
            _exit(127);
        }
        CHECK(status_of(child) == 0);
        touch();
        char *arguments[] = {"sh", "-c", script, NULL};
        CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
        CHECK(status_of(child) == 0);
        touch();
        CHECK(system(script) == 0);
        touch();
        read_line(line, sizeof line, command);
        CHECK(strcmp(line, first) == 0);

        /* What the program sets holds, however the pager binds the thread meanwhile. */
        int one = 0;
        for (int seen = -1; seen < round % CPU_COUNT(&all); one++)
            seen += CPU_ISSET(one, &all) ? 1 : 0;
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(one - 1, &only);
        touch();
        CHECK(sched_setaffinity(0, sizeof only, &only) == 0);
        for (int i = 0; i < 2; i++) {
            for (int at = 0; at < TOUCHES; at++)
                CHECK(*(uint64_t *)(data + (size_t)at * 7 % pages * PAGE) == word(7, (size_t)at * 7 % pages));
            set = bare();
            CHECK(CPU_EQUAL(&set, &only));
        }
        CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    }
    fprintf(stderr, "bound after %ld of 40 rounds of touches\n", bound);
    printf("%d processors\n", CPU_COUNT(&all));
    return 0;
}

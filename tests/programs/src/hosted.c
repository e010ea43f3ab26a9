/* What a program without the paging library does by direct system calls: threads, signals, handlers
   of its own, forks of forks, vfork, posix_spawn, itself by /proc/self/exe, and an exec at the end.
   Usage: hosted MIB PROGRAM [child] */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

extern char **environ;
static volatile sig_atomic_t ticks;
static sigjmp_buf back;
static char array[8 * MIB];

static void tick(int signal) {
    (void)signal;
    ticks = 1;
    void *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(at, 1 << 16);
}

static void fault(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static uint64_t fold(const uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum = sum * 31 + words[i];
    return sum;
}

static void *churn(void *argument) {
    uint64_t sum = 0;
    for (int round = 0; round < 20; round++) {
        unsigned char *piece = malloc(2 * MIB);
        if (!piece) abort();
        memset(piece, round + *(int *)argument, 2 * MIB);
        for (size_t i = 0; i < 2 * MIB; i += 512) sum += piece[i];
        free(piece);
    }
    return (void *)(uintptr_t)sum;
}

static void waited(pid_t child, const char *name) {
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) perror(name);
    printf("%s: status %x\n", name, status);
}

static void forks(uint64_t *words, size_t count) {
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            printf("a child reads %llx\n", (unsigned long long)fold(words, count));
            for (size_t i = 0; i < count; i += 3) words[i] = ~words[i];
            pid_t next = fork();
            if (next == 0) {
                printf("its child reads %llx\n", (unsigned long long)fold(words, count));
                exit(7);
            }
            waited(next, "grandchild");
            exit(round);
        }
        waited(child, "child");
    }
}

static void executes(const char *own, const char *other) {
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/echo", "echo", "after vfork", (char *)NULL);
        _exit(1);
    }
    waited(child, "vfork");
    child = vfork();
    if (child == 0) {
        execl("/nonexistent", "nothing", (char *)NULL);
        _exit(9);
    }
    waited(child, "vfork of nothing");
    char *itself[] = {(char *)own, "1", (char *)other, "child", NULL};
    waited(posix_spawn(&child, "/proc/self/exe", NULL, NULL, itself, environ) ? -1 : child, "itself");
    char *shell[] = {"sh", "-c", "\"$0\" 1 \"$1\" child; echo by a shell", (char *)own, (char *)other, NULL};
    waited(posix_spawn(&child, "/bin/sh", NULL, NULL, shell, environ) ? -1 : child, "shell");
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count < 3) return 2;
    if (count > 3) {
        puts("a child of another program");
        return 5;
    }
    size_t words = strtoul(arguments[1], NULL, 10) * MIB / sizeof(uint64_t);
    uint64_t *data = malloc(words * sizeof *data);
    if (!data) return 3;
    for (size_t i = 0; i < words; i++) data[i] = i * 2654435761u;
    for (size_t i = 0; i < sizeof array; i++) array[i] = (char)(i >> 12);

    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval each = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &each, NULL);
    signal(SIGSEGV, fault);
    int *volatile nowhere = (int *)8;
    if (!sigsetjmp(back, 1)) *nowhere = 1;
    puts("a fault was handled");

    pthread_t threads[8];
    int numbers[8];
    for (int i = 0; i < 8; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, churn, &numbers[i])) return 4;
    }
    for (int i = 0; i < 8; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        printf("thread %d: %lu\n", i, (unsigned long)(uintptr_t)sum);
    }
    while (!ticks) continue;
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
    forks(data, words);
    executes(arguments[0], arguments[2]);
    char link[4096] = "";
    ssize_t len = readlink("/proc/self/exe", link, sizeof link - 1);
    printf("own file: %s\n", len > 0 ? strrchr(link, '/') : "unknown");
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof array; i++) sum = sum * 31 + (unsigned char)array[i];
    printf("at the end: %llx %llx\n", (unsigned long long)fold(data, words), (unsigned long long)sum);
    execl("/bin/sh", "sh", "-c", "echo executed; exec \"$0\" 1 x child", arguments[2], (char *)NULL);
    return 6;
}

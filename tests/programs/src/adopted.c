/* A program that knows nothing of paging, until somebody adopts it: threads read, check and rewrite
 * words at random. Beside that, some of them allocate, map, fork, start programs and threads, wait,
 * and have a handler on a stack of its own.
 *
 * usage: adopted SECONDS MIB [THREADS]     MIB for each thread; status 0 if no word was wrong, no
 * call failed. SIGUSR1 ends the time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, STEPS = 2000, STACK = 2 << 20, HANDLED = 1 << 20 };

static int seconds, mib, count_of_threads;
static time_t began;
static volatile sig_atomic_t is_over;
static uint64_t wrong, touches;

static void end_the_time(int signal) {
    is_over = signal;
}

static uint64_t word(uint64_t index, uint64_t version) {
    return (index * 0x9e3779b97f4a7c15 ^ version * 0xda942042e4dd58b5) ^ index >> 7;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    __sync_fetch_and_add(&wrong, 1);
}

static void allocate(void) {
    char *block = malloc(3 << 20);
    memset(block, 1, 3 << 20);
    block = realloc(block, 5 << 20);
    for (int i = 0; i < 3 << 20; i++)
        if (block[i] != 1) {
            fail("realloc");
            break;
        }
    free(block);
}

static void map(void) {
    char *place = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(place, 7, 1 << 20);
    if (mprotect(place, 1 << 19, PROT_READ) || place[5] != 7 || place[700000] != 7)
        fail("mprotect");
    if (munmap(place, 1 << 20))
        fail("munmap");
}

static void fork_one(const uint64_t *words, const uint8_t *versions, size_t count) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < count; i += 997)
            if (words[i] != word(i, versions[i]))
                _exit(1);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        fail("fork");
}

static void start_one(void) {
    char line[20] = "";
    FILE *from = popen("echo hello", "r");
    if (!from || !fgets(line, sizeof line, from) || strcmp(line, "hello\n") || pclose(from))
        fail("popen");
}

static void *end_at_once(void *number) {
    return number;
}

static void start_threads(void) {
    pthread_t threads[3];
    void *number;
    for (intptr_t i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, end_at_once, (void *)i))
            fail("pthread_create");
    for (intptr_t i = 0; i < 3; i++)
        if (pthread_join(threads[i], &number) || (intptr_t)number != i)
            fail("pthread_join");
}

/* Signals that are ignored may end these waits while some threads are traced. */
static void wait_with_limits(void) {
    int pair[2];
    char byte;
    struct timeval limit = {0, 20000};
    struct timespec time = {0, 20000000};
    sigset_t one;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (recv(pair[0], &byte, 1, 0) != -1 || (errno != EAGAIN && errno != EINTR))
        fail("recv");
    close(pair[0]), close(pair[1]);
    struct pollfd nothing = {-1, 0, 0};
    if (poll(&nothing, 1, 20))
        fail("poll");
    sigemptyset(&one), sigaddset(&one, SIGUSR2);
    if (sigtimedwait(&one, NULL, &time) != -1 || (errno != EAGAIN && errno != EINTR))
        fail("sigtimedwait");
}

/* Only the handler uses these words. */
static struct {
    char *stack;
    uint64_t words[HANDLED], x;
    uint8_t versions[HANDLED];
    timer_t timer;
} handled = {.x = 88172645463325252};

static void handle(int signal) {
    volatile char deep[100 << 10];
    for (size_t at = 0; at < sizeof deep; at += 4096)
        deep[at] = signal;
    uintptr_t within = (uintptr_t)deep - (uintptr_t)handled.stack;
    if (within >= STACK)
        __sync_fetch_and_add(&wrong, 1);
    for (int step = 0; step < 20; step++) {
        handled.x ^= handled.x << 13, handled.x ^= handled.x >> 7, handled.x ^= handled.x << 17;
        size_t i = handled.x % HANDLED;
        if (handled.words[i] != word(i, handled.versions[i]))
            __sync_fetch_and_add(&wrong, 1);
        handled.words[i] = word(i, ++handled.versions[i]);
    }
}

/* The calling thread is interrupted each 2 ms. */
static void begin_to_handle(void) {
    handled.stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = handled.stack, .ss_size = STACK};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    struct itimerspec times = {{0, 2000000}, {0, 2000000}};
    event._sigev_un._tid = gettid();
    for (size_t i = 0; i < HANDLED; i++)
        handled.words[i] = word(i, 0);
    if (sigaltstack(&stack, NULL) || sigaction(SIGRTMIN, &action, NULL) ||
        timer_create(CLOCK_MONOTONIC, &event, &handled.timer) || timer_settime(handled.timer, 0, &times, NULL))
        fail("a handler");
}

static void end_handling(void) {
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    timer_delete(handled.timer);
    for (size_t i = 0; i < HANDLED; i++)
        if (handled.words[i] != word(i, handled.versions[i]))
            fail("a word of the handler");
}

static void *work(void *number) {
    size_t count = (size_t)mib << 17;
    uint64_t *words = malloc(count * 8), x = 88172645463325252 + 77 * (intptr_t)number, done = 0;
    uint8_t *versions = calloc(count, 1);
    int poll = epoll_create1(0), event = eventfd(0, 0);
    struct epoll_event wish = {.events = EPOLLIN};
    struct timespec pause = {0, 3000000};
    epoll_ctl(poll, EPOLL_CTL_ADD, event, &wish);
    for (size_t i = 0; i < count; i++)
        words[i] = word(i, 0);
    if ((intptr_t)number == 9)
        begin_to_handle();
    while (time(NULL) - began < seconds && !is_over) {
        for (int step = 0; step < STEPS; step++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            size_t i = x % count;
            if (words[i] != word(i, versions[i]))
                fail("a word");
            words[i] = word(i, ++versions[i]);
            done++;
        }
        switch ((intptr_t)number) {
        case 1: allocate(); break;
        case 2: map(); break;
        case 3: fork_one(words, versions, count); break;
        /* A signal that is ignored may end this wait while some threads are traced. */
        case 4: if (epoll_wait(poll, &wish, 1, 5) && errno != EINTR) fail("epoll_wait"); break;
        case 5: if (nanosleep(&pause, NULL)) fail("nanosleep"); break;
        case 6: start_one(); break;
        case 7: start_threads(); break;
        case 8: wait_with_limits(); break;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (words[i] != word(i, versions[i]))
            fail("a word at the end");
    if ((intptr_t)number == 9)
        end_handling();
    free(words);
    free(versions);
    __sync_fetch_and_add(&touches, done);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[MOST];
    seconds = count > 1 ? atoi(arguments[1]) : 5;
    mib = count > 2 ? atoi(arguments[2]) : 10;
    count_of_threads = count > 3 ? atoi(arguments[3]) : 9;
    began = time(NULL);
    /* Only the first thread, which waits for the others, has a call interrupted by it. */
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, SIGUSR1);
    signal(SIGUSR1, end_the_time);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    for (intptr_t i = 0; i < count_of_threads; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    for (int i = 0; i < count_of_threads; i++)
        pthread_join(threads[i], NULL);
    printf("%lu wrong\n", wrong);
    fprintf(stderr, "%lu touches\n", touches);
    return wrong != 0;
}

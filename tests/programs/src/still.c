/* System calls on a static array that is out: by the program, by a signal handler that interrupts
   it, by two threads, and by forked children while threads run. Usage: still FILE MIB. The array has
   48 MiB, of which the first MIB are used. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL (48ul << 20)
#define PAGE 4096ul
static unsigned char array[ALL];
static size_t pages;
static int file;
static volatile int ticks, bad_ticks, over;

static unsigned char byte(size_t page) {
    return (unsigned char)(page * 37 + 11);
}
static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed;
}

/* Writes a page to the file and reads it back, and makes calls whose name and answer lie in the
   array. The caller owns one of the 4 parts of each page. */
static int calls(uint64_t *seed, unsigned part) {
    size_t page = next(seed) % pages, other = next(seed) % pages;
    unsigned char *at = array + page * PAGE + part * 1024, *to = array + other * PAGE + part * 1024;
    off_t place = (off_t)(part + 4 * (getpid() & 0xffff)) << 12;
    int wrong = pwrite(file, at, 500, place) != 500;
    memset(to, 0, 500);
    struct iovec pieces[2] = {{to, 200}, {to + 200, 300}};
    wrong += preadv(file, pieces, 2, place) != 500;
    for (int i = 0; i < 500; i++)
        wrong += to[i] != byte(page);
    memset(to, byte(other), 1024);
    strcpy((char *)to, "/proc/self/exe");
    wrong += stat((char *)to, (struct stat *)(to + 512)) != 0;
    memset(to, byte(other), 1024);
    return wrong;
}

static void tick(int signal) {
    static uint64_t seed = 99;
    int error = errno;
    (void)signal;
    bad_ticks += calls(&seed, 0);
    ticks++;
    errno = error;
}
static void *work(void *argument) {
    uint64_t seed = 7 + (uintptr_t)argument;
    long wrong = 0;
    while (!over)
        wrong += calls(&seed, 2 + (unsigned)(uintptr_t)argument);
    return (void *)wrong;
}
static int see_all(void) {
    int wrong = 0;
    for (size_t page = 0; page < pages; page++)
        wrong += array[page * PAGE + 1024] != byte(page);
    return wrong;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    pages = (strtoul(arguments[2], NULL, 10) << 20) / PAGE;
    file = open(arguments[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || !pages || pages > ALL / PAGE)
        return perror(arguments[1]), 2;
    unlink(arguments[1]);
    for (size_t page = 0; page < pages; page++)
        memset(array + page * PAGE, byte(page), PAGE);
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarms, NULL);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    struct itimerval each = {{0, 3000}, {0, 3000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, NULL);
    uint64_t seed = 1;
    int wrong = 0;
    for (int i = 0; i < 2000 || !ticks; i++)
        wrong += calls(&seed, 1);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (!child) {
            ticks = 0;
            sigprocmask(SIG_UNBLOCK, &alarms, NULL);
            setitimer(ITIMER_REAL, &each, NULL);
            wrong = see_all();
            for (int j = 0; j < 500 || !ticks; j++)
                wrong += calls(&seed, 1);
            _exit(wrong || bad_ticks);
        }
        for (int j = 0; j < 200; j++)
            wrong += calls(&seed, 1);
        int status = -1;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        wrong += status != 0;
    }
    setitimer(ITIMER_REAL, &none, NULL);
    over = 1;
    for (int i = 0; i < 2; i++) {
        void *bad = NULL;
        pthread_join(threads[i], &bad);
        wrong += (long)bad;
    }
    printf("%d wrong, %d in handlers, %d at the end\n", wrong, bad_ticks, see_all());
    return wrong || bad_ticks;
}

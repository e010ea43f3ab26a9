/* Execs that fail while signals come: each handler asks for the next signal, in a few microseconds.
 * Some handlers leave by a long jump. What each exec is given takes memory, which must not add up.
 *
 * usage: execs TIMES
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>

#include "check.h"

enum { LONG = 100 << 10, SOON_NS = 20000, EACH_LEAVES = 7 };

static timer_t timer;
static volatile long handled, left;
static volatile sig_atomic_t executes;
static sigjmp_buf back;

static void asks(void)
{
    struct itimerspec soon = {{0, 0}, {0, SOON_NS}};
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
}

static void on_signal(int number)
{
    (void)number;
    asks();
    if (++handled % EACH_LEAVES == 0 && executes) {
        left++;
        siglongjmp(back, 1);
    }
}

static long mapped_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1 && fclose(file) == 0);
    return pages * (sysconf(_SC_PAGESIZE) >> 10);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    char name[64];
    snprintf(name, sizeof name, "execs.text.%d", (int)getpid());
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0700);
    CHECK(fd >= 0 && write(fd, "\177ELF no program\n", 16) == 16 && close(fd) == 0);
    char *argument = malloc(LONG);
    memset(argument, 'a', LONG - 1);
    argument[LONG - 1] = 0;
    char *arguments[] = {name, argument, NULL};
    struct sigaction action = {.sa_handler = on_signal};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec never = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    volatile long failed = 0, before = mapped_kib();
    asks();
    for (volatile int i = atoi(words[1]); i > 0; i--) {
        if (sigsetjmp(back, 1) == 0) {
            executes = 1;
            errno = 0;
            CHECK(execve(name, arguments, arguments) == -1 && errno == ENOEXEC);
            failed++;
        }
        executes = 0;
    }
    CHECK(timer_settime(timer, 0, &never, NULL) == 0 && timer_delete(timer) == 0 && unlink(name) == 0);
    long more = mapped_kib() - before;
    fprintf(stderr, "%ld execs failed, %ld left, %ld handlers, %ld KiB more mapped\n", failed, left, handled, more);
    CHECK(failed > 0 && handled > 0 && more < 16 << 10);
    return 0;
}

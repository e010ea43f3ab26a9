/* A library that is preloaded into a program, as fakeroot and libfaketime are: at the first call of
 * one of its functions, by whomever, it reads a variable, and remembers it. With -DPROGRAM, the
 * program: it prints what was remembered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef PROGRAM

int main(void) {
    return getpid() == syscall(SYS_getpid) ? 0 : 1;
}

#else

static int is_first = 1;

static void remember(void) {
    if (!is_first)
        return;
    is_first = 0;
    const char *word = getenv("REMEMBERED");
    char line[80];
    int len = snprintf(line, sizeof line, "%s\n", word == NULL ? "nothing" : word);
    if (write(1, line, (size_t)len) != len)
        _exit(2);
}

pid_t getpid(void) {
    remember();
    return (pid_t)syscall(SYS_getpid);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    remember();
    return (int)syscall(SYS_clock_gettime, clock, at);
}

#endif

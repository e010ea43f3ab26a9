/* Makes calls that the filter of guarded mode traps in guarded programs, and prints its words. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

static volatile int caught;

static void handle(int number) {
    (void)number;
    caught++;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = handle}, old;
    CHECK(sigaction(SIGUSR1, &action, &old) == 0);
    sigset_t set, all;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_BLOCK, &all, &set) == 0);
    CHECK(raise(SIGUSR1) == 0 && caught == 0);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
    CHECK(caught == 1);
    int waiting;
    int fds[2];
    CHECK(pipe(fds) == 0 && write(fds[1], "abc", 3) == 3);
    CHECK(ioctl(fds[0], FIONREAD, &waiting) == 0 && waiting == 3);
    char first[2], rest[2];
    struct iovec parts[] = {{first, 2}, {rest, 1}};
    CHECK(readv(fds[0], parts, 2) == 3 && memcmp(first, "ab", 2) == 0 && rest[0] == 'c');
    for (int i = 1; i < argc; i++) {
        struct iovec words[] = {{argv[i], strlen(argv[i])}, {"\n", 1}};
        CHECK(writev(1, words, 2) > 0);
    }
    return 0;
}

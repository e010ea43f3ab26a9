/* Threads set and read the action for SIGSYS at the same time, also in signal handlers, while the
 * signal arrives, and while the process forks and starts children. Each action that was set is
 * somebody's old one once, no action is a mixture of two, and children have one of them.
 *
 * usage: noted_actions MIB ROUNDS SEED; it executes itself with no argument
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

enum { SETTERS = 2, HANDLERS = 4, FIRST = 34, BITS = 24 };

static atomic_int over;
static atomic_long raised, handled;
/* The numbers of actions that were set, and of those that were returned as old ones. */
static atomic_ulong set_sum, old_sum;
static atomic_uint last;
static char *data;
static size_t bytes;

/* An action's number stands in the signals that its handler blocks. */
static unsigned number_of(const sigset_t *set) {
    unsigned number = 0;
    for (int bit = 0; bit < BITS; bit++)
        number |= (unsigned)(sigismember(set, FIRST + bit) == 1) << bit;
    return number;
}

static void arrives(unsigned handler) {
    sigset_t blocked;
    int before = errno;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
    CHECK(number_of(&blocked) % HANDLERS == handler);
    handled++;
    errno = before;
}

static void first(int signal) { (void)signal, arrives(0); }
static void third(int signal) { (void)signal, arrives(2); }
static void second(int signal, siginfo_t *what, void *context) {
    (void)context;
    CHECK(what->si_signo == signal);
    arrives(1);
}
static void fourth(int signal, siginfo_t *what, void *context) {
    (void)context;
    CHECK(what->si_signo == signal);
    arrives(3);
}

static struct sigaction action_of(unsigned number) {
    struct sigaction action = {.sa_flags = SA_RESTART | (number % 2 ? SA_SIGINFO : 0)};
    switch (number % HANDLERS) {
    case 0: action.sa_handler = first; break;
    case 1: action.sa_sigaction = second; break;
    case 2: action.sa_handler = third; break;
    default: action.sa_sigaction = fourth;
    }
    sigemptyset(&action.sa_mask);
    for (int bit = 0; bit < BITS; bit++)
        if (number >> bit & 1)
            sigaddset(&action.sa_mask, FIRST + bit);
    return action;
}

static unsigned checked(const struct sigaction *action) {
    unsigned number = number_of(&action->sa_mask);
    struct sigaction whole = action_of(number);
    CHECK(action->sa_sigaction == whole.sa_sigaction);
    CHECK((action->sa_flags & (SA_SIGINFO | SA_RESTART)) == whole.sa_flags);
    return number;
}

static void exchange(struct sigaction *old) {
    unsigned number = ++last;
    struct sigaction action = action_of(number);
    CHECK(sigaction(SIGSYS, &action, old) == 0);
    set_sum += number;
    old_sum += checked(old);
}

static void look(struct sigaction *now) {
    CHECK(sigaction(SIGSYS, NULL, now) == 0);
    checked(now);
}

static void on_timer(int signal) {
    struct sigaction old;
    int before = errno;
    (void)signal;
    exchange(&old);
    look(&old);
    errno = before;
}

/* The action is written to memory of which most is out. */
static struct sigaction *place(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return (struct sigaction *)(data + *seed % (bytes / 4096 - 2) * 4096 + *seed % 500 * 16);
}

static void *sets(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    while (!over) {
        struct sigaction old;
        exchange(&old);
        look(seed % 8 ? &old : place(&seed));
    }
    return NULL;
}

static void *sends(void *unused) {
    while (!over) {
        CHECK(raise(SIGSYS) == 0);
        raised++;
    }
    return unused;
}

/* The action of a program that was executed is the default one. */
static int child(void) {
    struct sigaction now;
    CHECK(sigaction(SIGSYS, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    return 0;
}

static void ends_well(pid_t pid) {
    int status = -1;
    CHECK(pid > 0);
    while (waitpid(pid, &status, 0) != pid)
        CHECK(errno == EINTR);
    CHECK(status == 0);
}

static void begets(char *self, int how) {
    struct sigaction now;
    pid_t pid = -1;
    char *words[] = {self, NULL}, *none[] = {NULL};
    if (how == 0) {
        pid = fork();
        if (pid == 0) {
            long before = handled;
            exchange(&now);
            look(&now);
            CHECK(raise(SIGSYS) == 0 && handled == before + 1);
            _exit(0);
        }
    } else if (how == 1) {
        pid = vfork();
        if (pid == 0) {
            struct sigaction other = {.sa_handler = SIG_IGN};
            if (sigaction(SIGSYS, NULL, &now) || now.sa_handler == SIG_DFL || sigaction(SIGSYS, &other, &now) ||
                sigaction(SIGSYS, NULL, &now) || now.sa_handler != SIG_IGN)
                _exit(1);
            syscall(SYS_kill, getpid(), SIGSYS);
            _exit(0);
        }
    } else {
        CHECK(posix_spawn(&pid, self, NULL, NULL, words, none) == 0);
    }
    ends_well(pid);
}

int main(int count, char **words) {
    if (count < 4)
        return child();
    bytes = (size_t)atol(words[1]) << 20;
    data = malloc(bytes);
    CHECK(data != NULL);
    fill(data, bytes, 1);
    struct sigaction old, action = action_of(0);
    CHECK(sigaction(SIGSYS, &action, &old) == 0 && old.sa_handler == SIG_DFL);
    action = (struct sigaction){.sa_handler = on_timer, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    pthread_t threads[SETTERS + 1];
    for (uintptr_t i = 0; i < SETTERS; i++)
        CHECK(pthread_create(&threads[i], NULL, sets, (void *)(atol(words[3]) * 8 + i + 1)) == 0);
    CHECK(pthread_create(&threads[SETTERS], NULL, sends, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int round = 0; round < atoi(words[2]); round++)
        begets(words[0], round % 3);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    over = 1;
    for (int i = 0; i <= SETTERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(sigaction(SIGSYS, NULL, &old) == 0);
    CHECK(old_sum + checked(&old) == set_sum && raised == handled);
    puts("no mixtures");
    return 0;
}

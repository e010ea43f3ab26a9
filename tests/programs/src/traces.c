/* A tracer that begins children by vfork and by fork, which ask to be traced, and says what stops
 * them and how they end. The children execute a program at once, after they have stopped
 * themselves, or after execs that fail early or late; handlers run before, or between. At last
 * several threads do this at the same time. In a hosted program each trapped call stops a traced
 * child, too: those stops are passed over.
 *
 * With `handled`, children of vfork run a handler between the request and the exec. Natively that
 * would stop them, and their parents would wait for ever.
 *
 * usage: traces MIB [handled]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

#define THREADS 3
#define TURNS 8
#define LONG (200u << 10)
#define COUNT(of) (sizeof(of) / sizeof *(of))

static char *self, *mib, *longer, text[] = "/tmp/traces-XXXXXX", busy[] = "/tmp/traces-XXXXXX";
static char lost[] = "/tmp/traces-XXXXXX", broken[] = "/tmp/traces-XXXXXX";

/* The program that is executed. */
static int traced(size_t bytes) {
    char *data = malloc(bytes);
    sigset_t all;
    CHECK(data != NULL);
    fill(data, bytes, 5);
    /* One that has waited for this comes now. */
    CHECK(sigfillset(&all) == 0 && sigprocmask(SIG_UNBLOCK, &all, NULL) == 0);
    raise(SIGUSR2);
    CHECK(differing(data, bytes, 5) == 0);
    return 3;
}

enum kind { AT_ONCE, STOPS, AFTER_FAILED, AFTER_TEXT, AFTER_LATE, FAILS, FAILS_LATE, PENDING, IN_HANDLER, HANDLED, KINDS };
static const char *const names[] = {"at once", "stops", "after failed execs", "after a text", "after late errors",
                                    "fails", "fails late", "pending", "in a handler", "handled"};

/* What one child does, and what its calls have answered. */
struct turn {
    FILE *out;
    enum kind kind;
    volatile long answers[14];
};

static _Thread_local struct turn *own;

static long error_of(const char *path, char *argument) {
    return execl(path, path, argument, (char *)NULL) == -1 ? errno : 0;
}

static void request(struct turn *turn) {
    volatile long *answers = turn->answers;
    answers[0] = ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    answers[1] = ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1 ? errno : 0;
}

/* Makes calls that are trapped; in the handler of a child that executes there, the rest, too. */
static void handler(int number) {
    struct turn *turn = own;
    struct sigaction action;
    turn->answers[12] += sigaction(number, NULL, &action) == 0 && action.sa_handler == handler;
    if (turn->kind == IN_HANDLER) {
        request(turn);
        execl(self, self, "traced", mib, (char *)NULL);
    }
}

/* In the child, which may have its parent's memory. */
static void begin(struct turn *turn) {
    enum kind kind = turn->kind;
    volatile long *answers = turn->answers;
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, SIGUSR1);
    own = turn;
    if (kind == PENDING)
        sigprocmask(SIG_BLOCK, &one, NULL);
    if (kind == IN_HANDLER)
        raise(SIGUSR1);
    request(turn);
    if (kind == PENDING || kind == HANDLED)
        kill(getpid(), SIGUSR1);
    /* Calls that are trapped. */
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int number = SIGHUP; number < SIGKILL; number++)
        answers[2] |= sigaction(number, &action, NULL);
    if (kind == STOPS)
        kill(getpid(), SIGSTOP);
    if (kind == AFTER_FAILED || kind == FAILS) {
        answers[3] = error_of("/nowhere/program", NULL);
        answers[4] = error_of("/tmp", NULL);
        answers[5] = error_of("/dev/null", NULL);
    }
    if (kind == AFTER_TEXT)
        answers[6] = error_of(text, NULL);
    if (kind == AFTER_LATE || kind == FAILS_LATE) {
        answers[7] = error_of(busy, NULL);
        answers[8] = error_of(lost, NULL);
        answers[9] = error_of(broken, NULL);
        answers[10] = error_of(self, longer);
    }
    if (kind != FAILS && kind != FAILS_LATE)
        execl(self, self, "traced", mib, (char *)NULL);
    answers[11] = sigaction(SIGUSR1, &action, NULL) == 0;
    _exit(7);
}

static void follow(const char *how, struct turn *turn, pid_t pid) {
    int status;
    CHECK(pid > 0);
    fprintf(turn->out, "%s, %s:", how, names[turn->kind]);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        siginfo_t what = {0};
        /* Somebody may stop all processes for a while. */
        CHECK(ptrace(PTRACE_GETSIGINFO, pid, NULL, &what) == 0);
        int is_others = signal == SIGCONT || (signal == SIGSTOP && what.si_pid != pid);
        if (signal != SIGSYS && !is_others)
            fprintf(turn->out, " %s", sigabbrev_np(signal));
        /* The stop is the child's own. */
        int passes = signal != SIGTRAP && signal != SIGSTOP && signal != SIGUSR2 && (signal != SIGUSR1 || turn->kind == HANDLED);
        CHECK(ptrace(PTRACE_CONT, pid, NULL, passes ? (long)signal : 0) == 0);
    }
    fprintf(turn->out, WIFEXITED(status) ? " status %d\n" : " signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    if (strcmp(how, "vfork") == 0)
        for (size_t i = 0; i < COUNT(turn->answers); i++)
            fprintf(turn->out, " %s", turn->answers[i] > 1 ? strerrorname_np((int)turn->answers[i]) : turn->answers[i] ? "1" : "-");
    fprintf(turn->out, "\n");
    fflush(turn->out);
}

static void by_vfork(FILE *out, enum kind kind) {
    struct turn turn = {.out = out, .kind = kind};
    pid_t pid = vfork();
    if (pid == 0)
        begin(&turn);
    follow("vfork", &turn, pid);
}

static void by_fork(FILE *out, enum kind kind) {
    struct turn turn = {.out = out, .kind = kind};
    pid_t pid = fork();
    if (pid == 0)
        begin(&turn);
    follow("fork", &turn, pid);
}

/* A child of vfork that stops before its exec has a parent that waits for ever. */
static int may_be_lent(enum kind kind) { return kind != STOPS && kind != HANDLED; }

static void *in_a_thread(void *said) {
    size_t bytes;
    FILE *out = open_memstream(said, &bytes);
    CHECK(out != NULL);
    for (int turn = 0; turn < TURNS; turn++) {
        enum kind kind = (enum kind[]){AT_ONCE, AFTER_LATE, FAILS_LATE, IN_HANDLER}[turn % 4];
        by_vfork(out, kind);
    }
    CHECK(fclose(out) == 0);
    return NULL;
}

static void at_once(void) {
    pthread_t threads[THREADS];
    char *said[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, in_a_thread, &said[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0 && printf("%s", said[i]) > 0);
}

/* Makes a file that may be executed, and leaves it open. */
static int file(char *path, const char *with, size_t bytes) {
    int fd = mkostemp(path, O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, with, bytes) == (ssize_t)bytes && fchmod(fd, 0755) == 0);
    return fd;
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (argc > 2 && strcmp(argv[1], "traced") == 0)
        return traced((size_t)atoi(argv[2]) << 20);
    self = realpath("/proc/self/exe", NULL);
    mib = argv[1];
    struct sigaction action = {.sa_handler = handler};
    CHECK(self != NULL && sigaction(SIGUSR1, &action, NULL) == 0);
    if (argc > 2) {
        for (int turn = 0; turn < TURNS; turn++)
            by_vfork(stdout, HANDLED);
        return 0;
    }
    /* A text that names no interpreter, which a shell would execute; one that names an interpreter
     * which is not there; a program that is not whole; a file that is open for writing; and an
     * argument that is too long. */
    static const char whole[] = "\x7f" "ELF\2\1\1";
    CHECK(close(file(text, "exit 5\n", 7)) == 0 && close(file(lost, "#!/nowhere/interpreter\n", 23)) == 0);
    CHECK(close(file(broken, whole, sizeof whole)) == 0 && file(busy, "#!/bin/true\n", 12) >= 0);
    longer = malloc(LONG + 1);
    CHECK(longer != NULL);
    memset(longer, 'a', LONG), longer[LONG] = 0;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        if (may_be_lent(kind))
            by_vfork(stdout, kind);
        by_fork(stdout, kind);
    }
    at_once();
    CHECK(unlink(text) == 0 && unlink(lost) == 0 && unlink(broken) == 0 && unlink(busy) == 0);
    return 0;
}

/* A tracer that begins children by vfork and by fork, which ask to be traced, and says what stops
 * them and how they end. The children execute a program at once, after they have stopped
 * themselves, or after execs that fail. In a hosted program each trapped call stops a traced child,
 * too: those stops are passed over.
 *
 * usage: traces MIB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

static char *self, *mib, text[] = "/tmp/traces-XXXXXX";
static volatile long answers[8];

/* The program that is executed. */
static int traced(size_t bytes) {
    char *data = malloc(bytes);
    CHECK(data != NULL);
    fill(data, bytes, 5);
    raise(SIGUSR2);
    CHECK(differing(data, bytes, 5) == 0);
    return 3;
}

enum kind { AT_ONCE, STOPS, AFTER_FAILED, AFTER_TEXT, FAILS, KINDS };
static const char *const names[] = {"at once", "stops", "after failed execs", "after a text", "fails"};

/* In the child, which may have its parent's memory. */
static void begin(enum kind kind) {
    answers[0] = ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    answers[1] = ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1 ? errno : 0;
    /* Calls that are trapped. */
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int number = SIGHUP; number < SIGKILL; number++)
        answers[2] |= sigaction(number, &action, NULL);
    if (kind == STOPS)
        kill(getpid(), SIGSTOP);
    if (kind == AFTER_FAILED || kind == FAILS) {
        answers[3] = execl("/nowhere/program", "program", (char *)NULL) == -1 ? errno : 0;
        answers[4] = execl("/tmp", "tmp", (char *)NULL) == -1 ? errno : 0;
        answers[5] = execl("/dev/null", "null", (char *)NULL) == -1 ? errno : 0;
    }
    if (kind == AFTER_TEXT)
        answers[6] = execl(text, text, (char *)NULL) == -1 ? errno : 0;
    if (kind != FAILS)
        execl(self, self, "traced", mib, (char *)NULL);
    answers[7] = sigaction(SIGUSR1, &action, NULL);
    _exit(7);
}

static void follow(const char *how, enum kind kind, pid_t pid) {
    int status;
    CHECK(pid > 0);
    printf("%s, %s:", how, names[kind]);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        if (signal != SIGSYS)
            printf(" %s", sigabbrev_np(signal));
        /* The stop is the child's own. */
        CHECK(ptrace(PTRACE_CONT, pid, NULL, signal == SIGTRAP || signal == SIGSTOP || signal == SIGUSR2 ? 0 : (long)signal) == 0);
    }
    printf(WIFEXITED(status) ? " status %d" : " signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    if (strcmp(how, "vfork") == 0)
        for (int i = 0; i < 8; i++)
            printf(" %s", answers[i] > 0 ? strerrorname_np((int)answers[i]) : answers[i] ? "error" : "-"), answers[i] = 0;
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (argc > 2)
        return traced((size_t)atoi(argv[2]) << 20);
    self = realpath("/proc/self/exe", NULL);
    mib = argv[1];
    /* A text that names no interpreter, which a shell would execute. */
    int file = mkstemp(text);
    CHECK(self != NULL && file >= 0 && write(file, "exit 5\n", 7) == 7);
    CHECK(fchmod(file, 0755) == 0 && close(file) == 0);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        /* A child of vfork that stops before its exec has a parent that waits for ever. */
        if (kind != STOPS) {
            pid_t pid = vfork();
            if (pid == 0)
                begin(kind);
            follow("vfork", kind, pid);
        }
        pid_t pid = fork();
        if (pid == 0)
            begin(kind);
        follow("fork", kind, pid);
    }
    CHECK(unlink(text) == 0);
    return 0;
}

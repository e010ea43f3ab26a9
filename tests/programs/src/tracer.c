// A tracer that begins a child by vfork, by fork, and once more from call to call, and says which
// signals stop the child and how it ends. The child makes calls with its memory. At last it follows
// a child with two threads, which both do.
// usage: tracer [tracee MIB [threads]]
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void reached(long sum) {
    printf("sum %ld\n", sum);
    fflush(stdout);
}

static long words, *data;

static void *in_a_thread(void *unused) {
    int zeros = open("/dev/zero", O_RDONLY);
    for (long i = 1; i < words; i += words / 64) {
        if (read(zeros, data + i, 64) != 64)
            _exit(9);
        data[i] = i;
    }
    raise(SIGUSR2);
    raise(SIGSYS);
    return unused;
}

static int tracee(long mib, int threads) {
    long sum = 0;
    words = mib << 17;
    data = malloc(words * sizeof *data);
    int zeros = open("/dev/zero", O_RDONLY);
    for (long i = 0; i < words; i++)
        data[i] = i;
    for (long i = 0; i < words; i += words / 64) {
        // Paged memory is read and written by the kernel: such calls are trapped.
        if (read(zeros, data + i, 64) != 64)
            return 9;
        data[i] = i;
    }
    for (long i = 0; i < words; i++)
        sum += data[i];
    signal(SIGSYS, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    raise(SIGUSR2);
    raise(SIGSYS);
    pthread_t thread;
    if (threads && (pthread_create(&thread, 0, in_a_thread, 0) || pthread_join(thread, 0)))
        return 9;
    reached(sum);
    return 3;
}

// In the child, with calls that are trapped between the two. A child of vfork may not fail.
static void begin(char *self, char *more) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    for (int number = 1; number < 20; number++)
        if (number != SIGKILL && number != SIGSTOP)
            sigaction(number, &action, 0);
    execl(self, self, "tracee", "48", more, (char *)0);
    _exit(127);
}

// The next stop or end, by one of the functions that wait.
static int next(int turn, pid_t pid, int *status) {
    siginfo_t what = {0};
    switch (turn % 4) {
    case 0:
        return waitpid(pid, status, __WALL) == pid;
    case 1:
        return wait(status) == pid;
    case 2:
        return wait4(-1, status, __WALL, 0) == pid;
    default:
        if (waitid(P_PID, pid, &what, WSTOPPED | WEXITED) != 0 || what.si_pid != pid)
            return 0;
        *status = what.si_code == CLD_EXITED ? what.si_status << 8
                                             : (what.si_status & 0xff) << 8 | 0x7f;
        return 1;
    }
}

static void follow(const char *name, pid_t pid, int request) {
    int status = 0, turn = 0;
    printf("%s:", name);
    while (next(turn++, pid, &status) && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        // Each call stops twice, and a guarded one more often.
        if (request == PTRACE_SYSCALL && signal == SIGTRAP && turn > 1)
            signal = 0;
        else
            printf(" %s", sigabbrev_np(signal));
        ptrace(request, pid, 0, signal == SIGTRAP ? 0 : (long)signal);
    }
    if (WIFEXITED(status))
        printf(" status %d\n", WEXITSTATUS(status));
    else
        printf(" signal %d\n", WTERMSIG(status));
    fflush(stdout);
}

// The threads of a traced process: what stops each after its beginning, and how the first ends.
struct thread {
    pid_t id;
    int has_signal;
    char said[200];
};
#define MOST 64

static void follow_all(pid_t pid) {
    static struct thread threads[MOST];
    int count = 0, status;
    for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0;) {
        int at = 0;
        while (at < count && threads[at].id != id)
            at++;
        if (at == MOST)
            exit(9);
        if (at == count)
            threads[count++].id = id;
        struct thread *thread = &threads[at];
        char *end = thread->said + strlen(thread->said);
        size_t room = thread->said + sizeof thread->said - end;
        if (!WIFSTOPPED(status)) {
            // Another thread may end with the process.
            if (id == pid)
                snprintf(end, room, " status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
            continue;
        }
        int signal = WSTOPSIG(status);
        if (signal == SIGTRAP && status >> 16 == 0)
            ptrace(PTRACE_SETOPTIONS, id, 0, PTRACE_O_TRACECLONE);
        if (signal == SIGTRAP || signal == SIGSTOP)
            signal = 0;
        else
            snprintf(end, room, " %s", sigabbrev_np(signal));
        thread->has_signal |= signal;
        ptrace(PTRACE_CONT, id, 0, (long)signal);
    }
    // Those of the pager have none.
    for (int at = 0; at < count; at++)
        if (threads[at].has_signal || threads[at].id == pid)
            printf("%s:%s\n", threads[at].id == pid ? "first" : "another", threads[at].said);
}

int main(int count, char **arguments) {
    if (count > 2)
        return tracee(atol(arguments[2]), count > 3);
    char *self = realpath("/proc/self/exe", 0);
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0)
        begin(self, 0);
    follow("vfork", pid, PTRACE_CONT);
    for (int turn = 0; turn < 2; turn++) {
        pid = fork();
        if (pid == 0)
            begin(self, 0);
        follow(turn ? "calls" : "fork", pid, turn ? PTRACE_SYSCALL : PTRACE_CONT);
    }
    pid = fork();
    if (pid == 0)
        begin(self, "threads");
    follow_all(pid);
    return 0;
}

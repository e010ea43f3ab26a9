/* Children of a process with paged memory: each sees memory as it was at the fork, whoever
 * writes afterwards. */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static size_t bytes;
static char *memory;
static uint64_t in_bss[1 << 20];

/* Waits for a child and returns its exit status; fails on a signal. */
static int ended(pid_t pid) {
    int status;
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_all(uint64_t series) {
    CHECK(differing(memory, bytes, series) == 0);
    CHECK(differing(in_bss, sizeof in_bss, series) == 0);
}

static void fill_all(uint64_t series) {
    fill(memory, bytes, series);
    fill(in_bss, sizeof in_bss, series);
}

/* A pair of pipes to take turns by. */
struct turns {
    int to_child[2], to_parent[2];
};

static void open_turns(struct turns *turns) { CHECK(pipe(turns->to_child) == 0 && pipe(turns->to_parent) == 0); }

/* Whoever waits for one that has ended hears of it. */
static void close_others(struct turns *turns, int is_child) {
    CHECK(close(turns->to_child[is_child]) == 0 && close(turns->to_parent[!is_child]) == 0);
}

static void close_own(struct turns *turns, int is_child) {
    CHECK(close(turns->to_child[!is_child]) == 0 && close(turns->to_parent[is_child]) == 0);
}

static void pass(int fd) { CHECK(write(fd, "x", 1) == 1); }

static void await(int fd) {
    char c;
    CHECK(read(fd, &c, 1) == 1);
}

static void child_reads(void) {
    fill_all(1);
    pid_t pid = fork();
    if (pid == 0) {
        expect_all(1);
        _exit(41);
    }
    CHECK(ended(pid) == 41);
    expect_all(1);
    puts("child reads: ok");
}

static void child_writes(void) {
    pid_t pid = fork();
    if (pid == 0) {
        fill_all(2);
        expect_all(2);
        _exit(42);
    }
    CHECK(ended(pid) == 42);
    expect_all(1);
    puts("child writes: ok");
}

/* The parent changes everything before the child looks. */
static void parent_writes(void) {
    struct turns turns;
    open_turns(&turns);
    pid_t pid = fork();
    close_others(&turns, pid == 0);
    if (pid == 0) {
        await(turns.to_child[0]);
        expect_all(1);
        pass(turns.to_parent[1]);
        await(turns.to_child[0]);
        expect_all(1);
        _exit(43);
    }
    fill_all(3);
    pass(turns.to_child[1]);
    await(turns.to_parent[0]);
    fill_all(4);
    pass(turns.to_child[1]);
    CHECK(ended(pid) == 43);
    expect_all(4);
    close_own(&turns, 0);
    puts("parent writes: ok");
}

static void grandchild(void) {
    pid_t pid = fork();
    if (pid == 0) {
        fill(memory, bytes / 2, 5);
        pid_t next = fork();
        if (next == 0) {
            CHECK(differing(memory, bytes / 2, 5) == 0);
            CHECK(differing(in_bss, sizeof in_bss, 4) == 0);
            fill_all(6);
            expect_all(6);
            _exit(44);
        }
        CHECK(ended(next) == 44);
        CHECK(differing(memory, bytes / 2, 5) == 0);
        _exit(45);
    }
    CHECK(ended(pid) == 45);
    expect_all(4);
    puts("grandchild: ok");
}

static void *end_at_once(void *argument) { return argument; }

/* A stack in a static array, of which a part is not paged from then on. */
static void stack_in_bss(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    char *stack = (char *)in_bss + sizeof in_bss / 2;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, 256 << 10) == 0);
    CHECK(pthread_create(&thread, &attributes, end_at_once, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    fill_all(4);
    pid_t pid = fork();
    if (pid == 0) {
        expect_all(4);
        fill_all(5);
        expect_all(5);
        _exit(46);
    }
    CHECK(ended(pid) == 46);
    expect_all(4);
    puts("a stack in a static array: ok");
}

/* Several children at a time, each with memory of its own too. */
static void siblings(void) {
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            char *own = malloc(bytes / 4);
            CHECK(own != NULL);
            fill(own, bytes / 4, 50 + i);
            expect_all(4);
            CHECK(differing(own, bytes / 4, 50 + i) == 0);
            free(own);
            _exit(50 + i);
        }
    }
    for (int i = 0; i < 3; i++)
        CHECK(ended(pids[i]) == 50 + i);
    expect_all(4);
    puts("siblings: ok");
}

static void others_start(char *self) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, "--child", (char *)NULL);
        _exit(99);
    }
    CHECK(ended(pid) == 7);
    char *arguments[] = {self, "--child", NULL};
    CHECK(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
    CHECK(ended(pid) == 7);
    pid = vfork();
    if (pid == 0) {
        execl(self, self, "--child", (char *)NULL);
        _exit(99);
    }
    CHECK(ended(pid) == 7);
    fflush(stdout);
    CHECK(system("exit 3") == 3 << 8);
    FILE *text = popen("echo from a shell", "r");
    char line[64] = "";
    CHECK(text != NULL && fgets(line, sizeof line, text) != NULL);
    CHECK(strcmp(line, "from a shell\n") == 0);
    CHECK(pclose(text) == 0);
    expect_all(4);
    puts("exec, posix_spawn, vfork, system, popen: ok");
}

/* Memory is mapped and unmapped between forks, so that a child's regions differ from the first
 * ones. */
static void mappings_change(void) {
    char *more = mmap(NULL, bytes / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(more != MAP_FAILED);
    fill(more, bytes / 2, 8);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(differing(more, bytes / 2, 8) == 0);
        CHECK(munmap(more, bytes / 2) == 0);
        char *again = mmap(NULL, bytes / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(again != MAP_FAILED);
        CHECK(not_zero(again, bytes / 2) == 0);
        expect_all(4);
        _exit(46);
    }
    CHECK(munmap(more, bytes / 4) == 0);
    CHECK(ended(pid) == 46);
    CHECK(munmap(more + bytes / 4, bytes / 4) == 0);
    expect_all(4);
    puts("mappings change: ok");
}

/* More children than a process has descriptors in a small table, all of which close what they
 * did not open, as daemons do. */
static void children_close() {
    enum { CHILDREN = 80 };
    pid_t children[CHILDREN];
    int go[2];
    fill(memory, bytes, 30);
    CHECK(pipe(go) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            char end;
            CHECK(dup2(go[0], 0) == 0 && close_range(3, ~0u, 0) == 0);
            CHECK(read(0, &end, 1) == 0);
            /* A part of it: there are many. */
            const uint64_t *words = (const uint64_t *)memory;
            for (size_t at = i * 512; at < bytes / 8; at += CHILDREN * 512)
                CHECK(words[at] == word(30, at));
            _exit(0);
        }
    }
    fill(memory, bytes, 31);
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        if (status != 0)
            fprintf(stderr, "child %d of %d: status %#x\n", i, CHILDREN, status);
        CHECK(status == 0);
    }
    CHECK(differing(memory, bytes, 31) == 0);
    puts("children that close all: ok");
}

/* The limit on open files goes down once the program runs. */
static void few_files() {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit few = {40, 40};
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        pid_t inner = fork();
        CHECK(inner >= 0);
        if (inner == 0)
            _exit(differing(memory, bytes, 31) != 0);
        int status;
        CHECK(waitpid(inner, &status, 0) == inner && status == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("few files: ok");
}

/* All that may be open is: a fork needs none of it, and leaves the limit as it was. Where the
 * pager cannot have more either, it fails, and stops nobody. */
static void no_files() {
    for (int may_raise = 0; may_raise < 2; may_raise++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct rlimit few = {60, may_raise ? 200 : 60}, now;
            CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
            if (!may_raise && geteuid() == 0)
                CHECK(setresuid(65534, 65534, 65534) == 0);
            while (dup(0) >= 0)
                ;
            CHECK(errno == EMFILE);
            pid_t inner = fork();
            if (inner == 0) {
                CHECK(dup(0) == -1 && errno == EMFILE);
                _exit(differing(memory, bytes, 31) != 0);
            }
            int status;
            if (inner > 0)
                CHECK(waitpid(inner, &status, 0) == inner && status == 0);
            else
                CHECK(!may_raise && errno == EAGAIN);
            CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == few.rlim_cur && now.rlim_max == few.rlim_max);
            CHECK(dup(0) == -1 && errno == EMFILE && differing(memory, bytes, 31) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    puts("no files: ok");
}

/* The same with many children that live: each has a pipe above the limit. */
static void no_files_for_many() {
    enum { MANY = 30 };
    pid_t child = fork(), children[MANY];
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit few = {60, 2000};
        int gate[2];
        char end;
        CHECK(pipe(gate) == 0 && setrlimit(RLIMIT_NOFILE, &few) == 0);
        while (dup(0) >= 0)
            ;
        for (int i = 0; i < MANY; i++) {
            children[i] = fork();
            CHECK(children[i] >= 0);
            if (children[i] == 0) {
                close(gate[1]);
                _exit(read(gate[0], &end, 1) != 0);
            }
        }
        CHECK(close(gate[1]) == 0);
        for (int i = 0; i < MANY; i++)
            CHECK(ended(children[i]) == 0);
        _exit(0);
    }
    CHECK(ended(child) == 0);
    puts("no files for many children: ok");
}

static void *forks_on(void *limit) {
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit now;
            _exit(getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur != *(rlim_t *)limit);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    return limit;
}

/* The same by two threads at a time: no child has the limit that the other's fork needs for a
 * moment. */
static void no_files_for_two() {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit few = {60, 200}, now;
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        while (dup(0) >= 0)
            ;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, forks_on, &few.rlim_cur) == 0);
        forks_on(&few.rlim_cur);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == few.rlim_cur && now.rlim_max == few.rlim_max);
        _exit(0);
    }
    CHECK(ended(child) == 0);
    puts("no files for two threads: ok");
}

static atomic_bool forked;

/* Opens as many files as it may, and closes them, again and again. */
static void *opens_all(void *unused) {
    int open[256];
    while (!forked) {
        size_t count = 0;
        while (count < 256 && (open[count] = dup(0)) >= 0)
            count++;
        while (count > 0)
            CHECK(close(open[--count]) == 0);
    }
    return unused;
}

/* From now on this thread may not raise a hard limit. */
static void cannot_raise() {
    struct __user_cap_header_struct of = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    CHECK(syscall(SYS_capget, &of, rights) == 0);
    rights[0].effective &= ~(1u << CAP_SYS_RESOURCE);
    CHECK(syscall(SYS_capset, &of, rights) == 0);
}

/* Forks while another thread opens all that may be open: at any moment of a fork there may be no
 * more. It fails then, where the limit cannot be raised, and stops nobody. */
static void files_come_and_go() {
    for (int may_raise = 0; may_raise < 2; may_raise++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct rlimit few = {100, may_raise ? 200 : 100};
            CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
            cannot_raise();
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, opens_all, NULL) == 0);
            for (int i = 0; i < 100; i++) {
                pid_t inner = fork();
                if (inner == 0)
                    _exit(0);
                CHECK(inner > 0 ? ended(inner) == 0 : errno == EAGAIN);
            }
            forked = true;
            CHECK(pthread_join(thread, NULL) == 0);
            _exit(differing(memory, bytes, 31) != 0);
        }
        CHECK(ended(child) == 0);
    }
    puts("files come and go: ok");
}

static volatile sig_atomic_t handled;

static void forks_in_handler(int signal) {
    (void)signal;
    int kept = errno, status;
    pid_t child = handled < 30 ? fork() : -1;
    if (child == 0)
        _exit(0);
    handled++;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    errno = kept;
}

static void *opens(void *unused) {
    FILE *file = fopen("/dev/null", "r");
    CHECK(file != NULL && fclose(file) == 0 && fflush(NULL) == 0);
    return unused;
}

/* A signal comes during a fork, and its handler forks: then another thread opens a stream, for
 * which it takes a lock that a fork takes too. */
static void handlers_fork() {
    struct sigaction old, action = {.sa_handler = forks_in_handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, &old) == 0);
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(0);
        int status;
        while (waitpid(child, &status, 0) < 0)
            CHECK(errno == EINTR);
        CHECK(status == 0);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, opens, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sigaction(SIGALRM, &old, NULL) == 0);
    puts("handlers that fork: ok");
}

static void *cancelled_forks(void *answer) {
    pthread_cancel(pthread_self());
    pid_t child = fork();
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    if (child == 0)
        _exit(0);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return answer;
}

static void *cancelled_exits(void *unused) {
    (void)unused;
    pthread_cancel(pthread_self());
    exit(5);
}

/* A thread that is to be cancelled forks, and ends the process: neither is where it may be
 * cancelled. */
static void cancelled() {
    pthread_t thread;
    void *answer;
    CHECK(pthread_create(&thread, NULL, cancelled_forks, memory) == 0);
    CHECK(pthread_join(thread, &answer) == 0 && answer == memory);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(pthread_create(&thread, NULL, cancelled_exits, NULL) == 0);
        pthread_join(thread, &answer);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 5 << 8);
    puts("cancelled threads fork and exit: ok");
}

static void *child_returns(void *answer) {
    pid_t child = fork();
    if (child == 0) {
        if (differing(memory, bytes, 31) != 0)
            _exit(1);
        return NULL;
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return answer;
}

/* The child of a thread's fork has that thread alone, and ends with it. */
static void ends_with_thread() {
    pthread_t thread;
    void *answer;
    fflush(stdout);
    CHECK(pthread_create(&thread, NULL, child_returns, memory) == 0);
    CHECK(pthread_join(thread, &answer) == 0 && answer == memory);
    puts("a child ends with its thread: ok");
}

/* Whether the thread that outlives `main` leaves one descriptor free. */
static int leaves_one;

static void *outlives_main(void *first) {
    CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
    memory = malloc(bytes);
    CHECK(memory != NULL);
    fill(memory, bytes, 37);
    CHECK(differing(memory, bytes, 37) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(differing(memory, bytes, 37) != 0);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    /* That nothing more can be opened, or a single file, does not keep it. */
    struct rlimit few;
    CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = 60;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int last = -1;
    for (int number; (number = dup(0)) >= 0;)
        last = number;
    if (leaves_one)
        close(last);
    return NULL;
}

static void says_so() { puts("the process ends with its last thread: ok"); }

/* In a program of its own: `main` has ended before anything is paged, and the process ends with
 * the other thread. */
static void main_ends() {
    static pthread_t first;
    first = pthread_self();
    atexit(says_so);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, outlives_main, &first) == 0);
    pthread_exit(NULL);
}

static void main_ends_first(char *program) {
    char amount[24];
    snprintf(amount, sizeof amount, "%zu", bytes >> 20);
    for (int one = 0; one < 2; one++) {
        pid_t child = vfork();
        if (child == 0) {
            execl(program, program, "--main-ends", amount, one ? "one" : NULL, NULL);
            _exit(127);
        }
        CHECK(ended(child) == 0);
    }
}

/* In a program of its own: the child, whose memory is its parent's, grows before anything is
 * paged. */
static void vfork_grows() {
    static char *volatile grown;
    pid_t child = vfork();
    if (child == 0) {
        grown = malloc(bytes);
        if (grown != NULL)
            fill(grown, bytes / 2, 5);
        _exit(grown == NULL);
    }
    CHECK(ended(child) == 0);
    char *more = malloc(bytes);
    CHECK(more != NULL);
    fill(more, bytes, 6);
    CHECK(differing(grown, bytes / 2, 5) == 0 && differing(more, bytes, 6) == 0);
    free(grown);
    free(more);
}

static void others_grow(char *program) {
    char amount[24];
    snprintf(amount, sizeof amount, "%zu", bytes >> 20);
    char *argv[] = {program, "--vfork-grows", amount, NULL};
    pid_t child;
    CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0 && ended(child) == 0);
    puts("a child of vfork that grows: ok");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return 7;
    if (argc > 2 && strcmp(argv[1], "--main-ends") == 0) {
        bytes = strtoull(argv[2], NULL, 10) << 20;
        leaves_one = argc > 3;
        main_ends();
    }
    if (argc > 2 && strcmp(argv[1], "--vfork-grows") == 0) {
        bytes = strtoull(argv[2], NULL, 10) << 20;
        vfork_grows();
        return 0;
    }
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) << 20;
    memory = malloc(bytes);
    CHECK(memory != NULL);
    child_reads();
    child_writes();
    parent_writes();
    grandchild();
    siblings();
    others_start(argv[0]);
    mappings_change();
    children_close();
    few_files();
    no_files();
    no_files_for_many();
    no_files_for_two();
    files_come_and_go();
    handlers_fork();
    cancelled();
    ends_with_thread();
    main_ends_first(argv[0]);
    others_grow(argv[0]);
    /* From then on the C library's fork takes locks, as there were two threads: so this is last. */
    stack_in_bss();
    free(memory);
    return 0;
}

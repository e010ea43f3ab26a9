/*
 * Programs that begin and end in ways of their own, each in a process of its own:
 *
 *     ends main-ends LIBRARY  main ends by pthread_exit before its threads, also in a child, with
 *                             that library's memory where one is named
 *     ends fork-at-exit       forks where the values of threads are gone already
 *     ends fork-at-first-use  forks while another thread makes the first use
 *     ends fork-on-own-stack  forks from a stack that was allocated here
 *     ends unload LIBRARY     loads the library, and unloads it with its memory in use
 *     ends limit FILE         syncs beyond the limit on the size of files
 *     ends descriptors FILE   maps with no descriptors left, again and again
 *     ends short              maps a file that has fewer bytes than it says
 *     ends locked             locks all that it maps
 *     ends processors         begins threads, and asks for its processors, while it misses
 *     ends closed FILE        closes what it did not open, as daemons do, and has no standard
 *                             output
 *     ends closed-all         closes all files in children, which are stopped or find what they had
 *     ends others             forks as somebody else, and with no descriptors left
 *     ends cancelled FILE     cancels threads at whatever they are
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <terapage.h>
#include <unistd.h>

#include "check.h"

enum { LEN = 8 << 20 };

static unsigned char *memory;
static pthread_key_t key;

static void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void use(unsigned char *(*allocate)(size_t))
{
    memory = allocate(LEN);
    CHECK(memory);
    for (size_t at = 0; at < LEN; at += 4096)
        memory[at] = (unsigned char)(at >> 12);
}

static unsigned char *allocate(size_t len)
{
    return tera_malloc(len);
}

static void check(void)
{
    for (size_t at = 0; at < LEN; at += 4096)
        CHECK(memory[at] == (unsigned char)(at >> 12));
}

static void *last(void *unused)
{
    usleep(50000);
    check();
    return unused;
}

static _Noreturn void end_main(void *(*thread)(void *))
{
    pthread_t id;
    CHECK(pthread_create(&id, NULL, thread, NULL) == 0);
    pthread_exit(NULL);
}

/* The library's, or the program's own. */
static unsigned char *(*given)(size_t) = allocate;

static void load(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    *(void **)&given = dlsym(library, "tera_malloc");
    CHECK(given);
}

static void *first(void *unused)
{
    use(given);
    pid_t child = fork();
    if (child == 0)
        end_main(last);
    wait_for(child);
    return unused;
}

static void fork_now(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        check();
        _exit(0);
    }
    wait_for(child);
}

static void with_value(void *unused)
{
    (void)unused;
    fork_now();
}

static void *forks_at_its_end(void *unused)
{
    CHECK(tera_free(&key) == -1);
    fork_now();
    CHECK(pthread_setspecific(key, &key) == 0);
    return unused;
}

static void fork_at_exit(void)
{
    pthread_t id;
    use(allocate);
    CHECK(pthread_key_create(&key, with_value) == 0 && pthread_create(&id, NULL, forks_at_its_end, NULL) == 0);
    CHECK(pthread_join(id, NULL) == 0);
    fork_now();
    CHECK(atexit(fork_now) == 0);
}

static void *uses(void *unused)
{
    use(allocate);
    return unused;
}

/* The first use takes a millisecond or some: in each of these processes the fork comes at
 * another moment of it. */
static void fork_at_first_use(void)
{
    for (unsigned delay = 0; delay < 5000; delay += 200) {
        pid_t process = fork();
        if (process == 0) {
            pthread_t id;
            CHECK(pthread_create(&id, NULL, uses, NULL) == 0);
            usleep(delay);
            pid_t child = fork();
            if (child == 0) {
                alarm(30);
                use(allocate);
                check();
                _exit(0);
            }
            wait_for(child);
            CHECK(pthread_join(id, NULL) == 0);
            _exit(0);
        }
        wait_for(process);
    }
}

static void *forks_again_and_again(void *unused)
{
    /* All of the stack but its end has left memory when the fork comes. */
    for (int round = 0; round < 5; round++) {
        check();
        fork_now();
    }
    return unused;
}

static void fork_on_own_stack(void)
{
    struct tera_options options = TERA_OPTIONS_INIT;
    options.memory = 1 << 20;
    options.block = 4096;
    CHECK(tera_init(&options) == 0);
    use(allocate);
    pthread_t id;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, tera_malloc(1 << 20), 1 << 20) == 0);
    CHECK(pthread_create(&id, &attributes, forks_again_and_again, NULL) == 0);
    CHECK(pthread_join(id, NULL) == 0);
}

static void unload(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    unsigned char *(*theirs)(size_t);
    *(void **)&theirs = dlsym(library, "tera_malloc");
    CHECK(theirs);
    use(theirs);
    CHECK(dlclose(library) == 0);
    check();
    fork_now();
}

static void *map(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
    unsigned char *at = tera_map_file(name, 0, 0, TERA_RDWR, NULL);
    CHECK(at && close(fd) == 0);
    return at;
}

static void limit(const char *name)
{
    unsigned char *at = map(name);
    struct rlimit most = {1 << 19, RLIM_INFINITY};
    memset(at, 7, 1 << 20);
    CHECK(setrlimit(RLIMIT_FSIZE, &most) == 0);
    CHECK(tera_sync(at) == -1 && errno == EFBIG && *tera_error());
    most.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &most) == 0 && tera_unmap(at) == 0);
    unsigned char byte;
    int fd = open(name, O_RDONLY);
    CHECK(pread(fd, &byte, 1, (1 << 20) - 1) == 1 && byte == 7);
}

static void descriptors(const char *name)
{
    CHECK(tera_unmap(map(name)) == 0);
    struct rlimit before, now;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    int next = dup(0), refused = 0;
    now = before;
    for (int round = 0; round < 2800; round++) {
        now.rlim_cur = (rlim_t)(next + round % 7);
        CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
        void *at = tera_map_file(name, 0, 0, TERA_RDWR, NULL);
        CHECK(at ? tera_unmap(at) == 0 : errno == EMFILE);
        refused += !at;
    }
    CHECK(refused && setrlimit(RLIMIT_NOFILE, &before) == 0 && tera_unmap(map(name)) == 0);
}

/* What it opens has the numbers then that the library had, if that took the least that are free. */
static void closed(const char *name)
{
    CHECK(tera_unmap(map(name)) == 0 && close(STDOUT_FILENO) == 0);
    unsigned char *at = tera_map_file(name, 0, 0, TERA_RDWR, NULL), byte;
    CHECK(at && write(STDOUT_FILENO, "lost", 4) == -1 && errno == EBADF);
    memset(at, 7, 1 << 20);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    int other = memfd_create("other", 0);
    for (int count = 0; count < 60; count++)
        CHECK(dup(other) > 0);
    CHECK(tera_unmap(at) == 0 && lseek(other, 0, SEEK_END) == 0);
    int fd = open(name, O_RDONLY);
    CHECK(lseek(fd, 0, SEEK_END) == 1 << 20 && pread(fd, &byte, 1, 1 << 19) == 1 && byte == 7);
}

/* The parent's files stay, so what it checks is there. */
static void closed_all(void)
{
    use(allocate);
    for (int count = 0; count < 20; count++) {
        pid_t child = fork();
        if (child == 0) {
            close(STDERR_FILENO);
            close_range(3, ~0U, 0);
            for (size_t at = 0; at < LEN; at += 4096)
                if (memory[at] != (unsigned char)(at >> 12))
                    _exit(1);
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    }
    check();
}

static void fork_as_others(void)
{
    struct rlimit none = {3, 64};
    /* The default store: a directory that anybody may write to. */
    CHECK(unsetenv("TERAPAGE_STORE") == 0 && unsetenv("TMPDIR") == 0);
    use(allocate);
    /* Root's alone. Whoever it is then, the limit may be raised from 3. */
    if (setresuid(65534, 65534, 65534) == 0)
        fork_now();
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    fork_now();
    CHECK(getrlimit(RLIMIT_NOFILE, &none) == 0 && none.rlim_cur == 3);
}

static void short_file(void)
{
    const char *name = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (access(name, R_OK) == 0)
        CHECK(!tera_map_file(name, 0, 0, TERA_RDONLY, NULL) && errno == ENODEV);
}

static void *works(void *at)
{
    for (;;) {
        void *some = tera_malloc(200000);
        CHECK(some);
        memset(some, 1, 200000);
        CHECK(tera_sync(at) == 0 && tera_free(some) == 0);
        pthread_testcancel();
    }
}

static void cancelled(const char *name)
{
    unsigned char *at = map(name);
    for (unsigned round = 0; round < 30; round++) {
        pthread_t ids[4];
        memset(at, (int)round, 1 << 20);
        for (int id = 0; id < 4; id++)
            CHECK(pthread_create(&ids[id], NULL, works, at) == 0);
        usleep(300 * round);
        for (int id = 0; id < 4; id++)
            CHECK(pthread_cancel(ids[id]) == 0 && pthread_join(ids[id], NULL) == 0);
    }
    CHECK(tera_unmap(at) == 0);
    use(allocate);
    fork_now();
}

static void locked(void)
{
    if (mlockall(MCL_FUTURE) == 0)
        CHECK(!tera_malloc(1) && errno == EINVAL && munlockall() == 0);
    use(allocate);
    check();
}

static void *its_processors(void *set)
{
    CHECK(sched_getaffinity(0, sizeof(cpu_set_t), set) == 0);
    return NULL;
}

/* The pager binds no thread of such a program, which has no hooks that would end the binding. */
static void processors(void)
{
    cpu_set_t all, set;
    its_processors(&all);
    use(allocate);
    unsigned seed = 1;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 400; i++) {
            size_t page = (size_t)rand_r(&seed) % (LEN / 4096);
            CHECK(memory[page * 4096] == (unsigned char)page);
        }
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, its_processors, &set) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(CPU_EQUAL(&set, &all));
        its_processors(&set);
        CHECK(CPU_EQUAL(&set, &all));
    }
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    const char *how = argv[1], *name = argc > 2 ? argv[2] : "";
    alarm(60);
    if (strcmp(how, "main-ends") == 0) {
        if (*name)
            load(name);
        end_main(first);
    } else if (strcmp(how, "fork-at-exit") == 0)
        fork_at_exit();
    else if (strcmp(how, "fork-at-first-use") == 0)
        fork_at_first_use();
    else if (strcmp(how, "fork-on-own-stack") == 0)
        fork_on_own_stack();
    else if (strcmp(how, "unload") == 0)
        unload(name);
    else if (strcmp(how, "limit") == 0)
        limit(name);
    else if (strcmp(how, "descriptors") == 0)
        descriptors(name);
    else if (strcmp(how, "short") == 0)
        short_file();
    else if (strcmp(how, "processors") == 0)
        processors();
    else if (strcmp(how, "locked") == 0)
        locked();
    else if (strcmp(how, "closed") == 0)
        closed(name);
    else if (strcmp(how, "closed-all") == 0)
        closed_all();
    else if (strcmp(how, "others") == 0)
        fork_as_others();
    else if (strcmp(how, "cancelled") == 0)
        cancelled(name);
    else
        CHECK(!"known");
    return 0;
}

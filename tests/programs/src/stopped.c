/* A program that is stopped, by a signal or by a tracer, while others read its memory: they wait
 * until it goes on, and then get its bytes. One that is killed meanwhile leaves it as it was.
 * If the program is guarded, they do not wait: they get the bytes of pages that are there, and
 * EFAULT for others.
 *
 * usage: stopped MIB [guarded]
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

enum { PART = 1 << 20, PAGE = 4096, THREADS_MOST = 64 };

static char *data;
static size_t size;
static pid_t threads[THREADS_MOST];
static int traced;
static int guarded;

/* Reads the memory of a program. */
static void read_parts(pid_t from)
{
    char *got = malloc(PART);
    CHECK(got != NULL);
    for (size_t at = 0; at < size; at += PART) {
        struct iovec here = {got, PART}, there = {data + at, PART};
        CHECK(process_vm_readv(from, &here, 1, &there, 1, 0) == PART);
        CHECK(differing(got, PART, at) == 0);
    }
}

/* Reads each page of a stopped program that is guarded. */
static void read_pages(pid_t from)
{
    char path[64], *got = malloc(PAGE), *wanted = malloc(PART);
    CHECK(got != NULL && wanted != NULL);
    snprintf(path, sizeof path, "/proc/%d/pagemap", from);
    int pages = open(path, O_RDONLY);
    CHECK(pages >= 0);
    for (size_t at = 0; at < size; at += PAGE) {
        uint64_t entry;
        CHECK(pread(pages, &entry, sizeof entry, ((size_t)data + at) / PAGE * sizeof entry) == sizeof entry);
        struct iovec here = {got, PAGE}, there = {data + at, PAGE};
        ssize_t bytes = process_vm_readv(from, &here, 1, &there, 1, 0);
        if (at % PART == 0)
            fill(wanted, PART, at);
        /* Present, or swapped out. */
        if (entry >> 62 != 0)
            CHECK(bytes == PAGE && memcmp(got, wanted + at % PART, PAGE) == 0);
        else
            CHECK(bytes == -1 && errno == EFAULT);
    }
}

static pid_t reader(pid_t from)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0)
        return child;
    if (guarded)
        read_pages(from);
    else
        read_parts(from);
    _exit(0);
}

/* Stops all threads of a process. Returns whether that is allowed. */
static int trace(pid_t process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        pid_t thread = atoi(task->d_name);
        if (thread == 0 || ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
            continue;
        int status;
        CHECK(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0);
        CHECK(waitpid(thread, &status, __WALL) == thread && traced < THREADS_MOST);
        threads[traced++] = thread;
    }
    closedir(tasks);
    return traced > 0;
}

static void watch(pid_t parent)
{
    for (int way = 0; way < 2; way++) {
        if (way == 0)
            CHECK(kill(parent, SIGSTOP) == 0);
        else if (!trace(parent))
            break;
        pid_t first = reader(parent), second = reader(parent);
        int status;
        usleep(300000);
        CHECK(kill(first, SIGKILL) == 0 && waitpid(first, &status, 0) == first);
        if (guarded)
            CHECK(waitpid(second, &status, 0) == second && status == 0);
        if (way == 0)
            CHECK(kill(parent, SIGCONT) == 0);
        while (traced > 0)
            CHECK(ptrace(PTRACE_DETACH, threads[--traced], NULL, NULL) == 0);
        if (!guarded)
            CHECK(waitpid(second, &status, 0) == second && status == 0);
    }
    _exit(0);
}

int main(int count, char **words)
{
    CHECK(count > 1);
    guarded = count > 2;
    size = (size_t)atoi(words[1]) * PART;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    for (size_t at = 0; at < size; at += PART)
        fill(data + at, PART, at);
    pid_t watcher = fork();
    CHECK(watcher >= 0);
    if (watcher == 0)
        watch(getppid());
    int status;
    CHECK(waitpid(watcher, &status, 0) == watcher && status == 0);
    for (size_t at = 0; at < size; at += PART)
        CHECK(differing(data + at, PART, at) == 0);
    puts("ok");
    return 0;
}

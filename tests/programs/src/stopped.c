/* A program that is stopped, by a signal or by a tracer, while others read its memory: they wait
 * until it goes on, and then get its bytes. One that is killed meanwhile leaves it as it was.
 *
 * usage: stopped MIB
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

enum { PART = 1 << 20, THREADS_MOST = 64 };

static char *data;
static size_t size;
static pid_t threads[THREADS_MOST];
static int traced;

static pid_t reader(pid_t from)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0)
        return child;
    char *got = malloc(PART);
    CHECK(got != NULL);
    for (size_t at = 0; at < size; at += PART) {
        struct iovec here = {got, PART}, there = {data + at, PART};
        CHECK(process_vm_readv(from, &here, 1, &there, 1, 0) == PART);
        CHECK(differing(got, PART, at) == 0);
    }
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
        if (way == 0)
            CHECK(kill(parent, SIGCONT) == 0);
        while (traced > 0)
            CHECK(ptrace(PTRACE_DETACH, threads[--traced], NULL, NULL) == 0);
        CHECK(waitpid(second, &status, 0) == second && status == 0);
    }
    _exit(0);
}

int main(int count, char **words)
{
    CHECK(count > 1);
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

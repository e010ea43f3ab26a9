/* The action for SIGSYS of a program that starts children by posix_spawn and by vfork: these set
   actions of their own, and the program keeps its own. Usage: spawned_actions MIB; it executes
   itself with no argument. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

static volatile sig_atomic_t handled;

static void handles(int signal)
{
    (void)signal;
    handled++;
}

static void ends_well(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void has_its_action(int times)
{
    struct sigaction now;
    CHECK(sigaction(SIGSYS, NULL, &now) == 0 && now.sa_handler == handles);
    CHECK(raise(SIGSYS) == 0 && handled == times);
}

/* The child's action is that of the program that was executed. */
static int child(void)
{
    struct sigaction now;
    CHECK(sigaction(SIGSYS, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    return 0;
}

static void *spawns(void *self)
{
    char *words[] = {self, NULL}, *none[] = {NULL};
    for (int i = 0; i < 20; i++) {
        posix_spawnattr_t attributes;
        sigset_t set;
        pid_t pid = -1;
        /* glibc resets each signal that has a handler in any case. */
        CHECK(posix_spawnattr_init(&attributes) == 0 && sigemptyset(&set) == 0 && sigaddset(&set, SIGSYS) == 0);
        CHECK(posix_spawnattr_setsigdefault(&attributes, &set) == 0);
        CHECK(posix_spawnattr_setflags(&attributes, i % 2 ? POSIX_SPAWN_SETSIGDEF : 0) == 0);
        CHECK(posix_spawn(&pid, self, NULL, &attributes, words, none) == 0);
        ends_well(pid);
    }
    return NULL;
}

int main(int count, char **words)
{
    if (count < 2)
        return child();
    size_t size = (size_t)atoi(words[1]) << 20;
    char *data = malloc(size);
    CHECK(data != NULL);
    fill(data, size, 1);
    struct sigaction action = {.sa_handler = handles, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    has_its_action(1);
    spawns(words[0]);
    has_its_action(2);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, spawns, words[0]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    has_its_action(3);
    pid_t pid = vfork();
    if (pid == 0) {
        /* It sees its own action, and the parent does not. */
        struct sigaction other = {.sa_handler = SIG_IGN}, now;
        if (sigaction(SIGSYS, NULL, &now) || now.sa_handler != handles || sigaction(SIGSYS, &other, &now) ||
            now.sa_handler != handles || sigaction(SIGSYS, NULL, &now) || now.sa_handler != SIG_IGN)
            _exit(1);
        syscall(SYS_kill, getpid(), SIGSYS);
        _exit(0);
    }
    ends_well(pid);
    has_its_action(4);
    CHECK(differing(data, size, 1) == 0);
    puts("kept");
    return 0;
}

/* Executes itself in each way that C has, without an environment: is the library there? */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char own[4096];

/* What a child says by its status: the library and its settings are there, and all arguments. */
enum { PAGED = 40, UNPAGED = 41, WRONG = 42 };

static int child(int count, char **arguments) {
    char line[4096];
    int loaded = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        loaded |= strstr(line, "libterapage_preload.so") != NULL;
    /* The right to page, too, where it is handed on. */
    const char *device = getenv("TERAPAGE_DEVICE");
    if (device && fcntl(atoi(device), F_GETFD) < 0)
        return WRONG;
    for (int i = 2; i < count; i++)
        if (atoi(arguments[i]) != i)
            return WRONG;
    if (getenv("MANY") && strlen(getenv("MANY")) != 9)
        return WRONG;
    return loaded && getenv("TERAPAGE_MEMORY") && getenv("TERAPAGE_STORE") && !getenv("TERAPAGE") ? PAGED : UNPAGED;
}

static int status_of(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *few[] = {own, "child", "2", "3", NULL};
static char *none[] = {NULL};
static char *off[] = {"TERAPAGE=off", NULL};
static char *other[] = {"LD_PRELOAD=libm.so.6", "A=b", NULL};
static char *settings[] = {"TERAPAGE_MEMORY=67108864", "LD_PRELOAD=", NULL};

/* More than there is room for on a stack. */
static char **many(void) {
    static char *all[5002];
    for (int i = 0; i < 5000; i++)
        all[i] = i ? "SOMETHING=of no importance to anybody" : "MANY=123456789";
    return all;
}

static void execute(const char *way) {
    char *last = strrchr(own, '/') + 1;
    if (!strcmp(way, "execve")) execve(own, few, none);
    if (!strcmp(way, "null")) execve(own, few, NULL);
    if (!strcmp(way, "other")) execve(own, few, other);
    if (!strcmp(way, "settings")) execve(own, few, settings);
    if (!strcmp(way, "many")) execve(own, few, many());
    if (!strcmp(way, "off")) execve(own, few, off);
    if (!strcmp(way, "execvpe")) execvpe(last, few, none);
    if (!strcmp(way, "execle")) execle(own, own, "child", "2", "3", "4", "5", "6", "7", "8", "9", NULL, none);
    if (!strcmp(way, "execle-few")) execle(own, own, "child", NULL, none);
    if (!strcmp(way, "fexecve")) fexecve(open(own, O_RDONLY), few, none);
    if (!strcmp(way, "execveat")) execveat(open(own, O_PATH), "", few, none, AT_EMPTY_PATH);
    if (!strcmp(way, "descriptors")) {
        for (int i = 3; i < 2000; i++)
            close(i);
        close_range(3, ~0U, 0);
        execve(own, few, none);
    }
    environ = none;
    if (!strcmp(way, "execv")) execv(own, few);
    if (!strcmp(way, "execl")) execl(own, own, "child", "2", "3", "4", "5", "6", "7", "8", "9", "10", NULL);
    if (!strcmp(way, "execl-few")) execl(own, own, "child", "2", NULL);
    _exit(99);
}

static void execute_by_path(const char *way, char *path) {
    char *last = strrchr(own, '/') + 1;
    clearenv();
    setenv("PATH", path, 1);
    if (!strcmp(way, "execvp")) execvp(last, few);
    if (!strcmp(way, "execlp")) execlp(last, last, "child", "2", "3", "4", "5", "6", "7", NULL);
    _exit(98);
}

static int spawned(const char *way) {
    pid_t pid;
    char *last = strrchr(own, '/') + 1;
    int errno_ = strcmp(way, "posix_spawnp") ? posix_spawn(&pid, own, NULL, NULL, few, none)
                                             : posix_spawnp(&pid, last, NULL, NULL, few, none);
    return errno_ ? -1 : status_of(pid);
}

static int by_shell(const char *way, int keeps) {
    char command[5000];
    snprintf(command, sizeof command, "%s child 2 3", own);
    if (!keeps)
        clearenv();
    else
        setenv("TERAPAGE", "off", 1);
    if (!strcmp(way, "system"))
        return WEXITSTATUS(system(command));
    return WEXITSTATUS(pclose(popen(command, "r")));
}

static int report(const char *way, int got, int expected) {
    if (got == expected)
        return 0;
    printf("%s: %d, not %d\n", way, got, expected);
    return 1;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "child"))
        return child(count, arguments);
    if (!realpath(arguments[0], own))
        return 2;
    char path[4096];
    strcpy(path, own);
    *strrchr(path, '/') = 0;
    setenv("PATH", path, 1);
    int wrong = 0;
    static const char *ways[] = {"execve", "null", "other", "settings", "many", "execvpe", "execle", "execle-few",
                                 "fexecve", "execveat", "descriptors", "execv", "execl", "execl-few"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t pid = fork();
        if (pid == 0)
            execute(ways[i]);
        wrong += report(ways[i], status_of(pid), PAGED);
    }
    for (int i = 0; i < 2; i++) {
        const char *way = i ? "execlp" : "execvp";
        pid_t pid = fork();
        if (pid == 0)
            execute_by_path(way, path);
        wrong += report(way, status_of(pid), PAGED);
    }
    for (int i = 0; i < 200; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execve(own, few, i % 2 ? none : other);
            _exit(97);
        }
        wrong += report("vfork", status_of(pid), PAGED);
    }
    pid_t pid = fork();
    if (pid == 0)
        execute("off");
    wrong += report("off", status_of(pid), UNPAGED);
    wrong += report("posix_spawn", spawned("posix_spawn"), PAGED);
    wrong += report("posix_spawnp", spawned("posix_spawnp"), PAGED);
    for (int i = 0; i < 4; i++) {
        const char *way = i % 2 ? "popen" : "system";
        pid = fork();
        if (pid == 0)
            _exit(by_shell(way, i / 2));
        wrong += report(way, status_of(pid), i / 2 ? UNPAGED : PAGED);
    }
    /* What is not there fails as ever. */
    wrong += report("missing", execve("/no/such/program", few, none), -1);
    wrong += report("missing by name", execlp("no-such-program-here", "no", NULL), -1);
    if (!wrong)
        puts("all keep it");
    return wrong != 0;
}

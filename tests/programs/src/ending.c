/* Fills and checks memory, and ends with status 3 in one of the ways that C has.
 *
 * ending HOW MIB [fork]    HOW is return, exit, _exit, _Exit or quick_exit; or a number: two
 *                          threads end it, one by exit, the other by _exit as many turns of a
 *                          loop later. fork: a child ends so, and the program with its status
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static atomic_int ends;

static void *end_by_exit(void *argument) {
    (void)argument;
    atomic_store(&ends, 1);
    exit(3);
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    char *memory = malloc(bytes);
    CHECK(memory != NULL);
    fill(memory, bytes, 1);
    CHECK(differing(memory, bytes, 1) == 0);
    if (argc == 4) {
        int status = 0;
        pid_t child = fork();
        CHECK(child >= 0 && (child == 0 || waitpid(child, &status, 0) == child));
        if (child > 0)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        CHECK(differing(memory, bytes, 1) == 0);
    }
    const char *how = argv[1];
    if (strcmp(how, "exit") == 0)
        exit(3);
    if (strcmp(how, "_exit") == 0)
        _exit(3);
    if (strcmp(how, "_Exit") == 0)
        _Exit(3);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(3);
    if (how[0] >= '0' && how[0] <= '9') {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, end_by_exit, NULL) == 0);
        while (!atomic_load(&ends)) {
        }
        for (volatile long turn = strtol(how, NULL, 10); turn > 0; turn--) {
        }
        _exit(3);
    }
    return strcmp(how, "return") == 0 ? 3 : 2;
}

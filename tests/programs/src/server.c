/* A server: begins as root, goes on as nobody, and only then grows and forks.
 *
 * usage: server MIB
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define NOBODY 65534

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * MIB;
    if (geteuid() == 0)
        CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    else
        fputs("not root: the privileges that it gives up are none\n", stderr);
    char *data = malloc(bytes);
    CHECK(data != NULL);
    fill(data, bytes, 1);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(differing(data, bytes, 1) == 0);
            fill(data, bytes / 2, 2);
            CHECK(differing(data, bytes / 2, 2) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(differing(data, bytes, 1) == 0);
    puts("server: ok");
    return 0;
}

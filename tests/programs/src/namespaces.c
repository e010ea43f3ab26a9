/* Processes whose children get a namespace of processes of their own, as those that begin
 * containers do: they grow and fork, and so do the children.
 *
 * usage: namespaces MIB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static size_t bytes;

static char *grow(uint64_t series) {
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    fill(data, bytes, series);
    return data;
}

static void ends_well(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Forks children that are the first and the second of the new namespace. */
static void begin(const char *data, uint64_t series) {
    pid_t first = fork();
    if (first == 0) {
        CHECK(getpid() == 1 && differing(data, bytes, series) == 0);
        char *own = grow(series + 1);
        pid_t second = fork();
        if (second == 0)
            _exit(differing(own, bytes, series + 1) != 0 || differing(data, bytes, series) != 0);
        ends_well(second);
        CHECK(differing(own, bytes, series + 1) == 0);
        _exit(0);
    }
    ends_well(first);
    CHECK(differing(data, bytes, series) == 0);
}

/* Goes into a namespace that is there already, by its file. */
static void enter(int kind) {
    int to_parent[2], to_first[2];
    CHECK(pipe(to_parent) == 0 && pipe(to_first) == 0);
    pid_t maker = fork();
    if (maker == 0) {
        CHECK(unshare(CLONE_NEWPID) == 0);
        pid_t first = fork();
        if (first == 0) {
            char c;
            CHECK(close(to_first[1]) == 0 && read(to_first[0], &c, 1) == 0);
            _exit(0);
        }
        CHECK(close(to_first[1]) == 0 && write(to_parent[1], &first, sizeof first) == sizeof first);
        ends_well(first);
        _exit(0);
    }
    pid_t first;
    CHECK(read(to_parent[0], &first, sizeof first) == sizeof first);
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/ns/pid", first);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && setns(file, kind) == 0);
    char *data = grow(7);
    pid_t child = fork();
    if (child == 0) /* Its parent is outside. */
        _exit(getppid() != 0 || differing(data, bytes, 7) != 0);
    ends_well(child);
    CHECK(close(to_first[1]) == 0);
    ends_well(maker);
}

int main(int argc, char **argv) {
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (child == 0) {
            if (way < 2) {
                /* Grown before or afterwards. */
                char *data = way == 0 ? grow(1) : NULL;
                CHECK(unshare(CLONE_NEWPID) == 0);
                begin(data ? data : (data = grow(1)), 1);
            } else {
                enter(way == 2 ? 0 : CLONE_NEWPID);
            }
            _exit(0);
        }
        ends_well(child);
    }
    puts("namespaces: ok");
    return 0;
}

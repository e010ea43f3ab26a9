/* Where paging begins the kernel may have given pages, with a huge one, that nobody had asked for.
 * Memory that is mapped there later is zero all the same, each time, and a forked child can use it.
 *
 * usage: begin MIB          this much in pieces of many sizes, each size in a process of its own
 *        begin MIB PIECE    pieces of this many KiB
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define KIB ((size_t)1 << 10)

static void *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void pieces(size_t bytes, size_t piece)
{
    for (size_t done = 0; done < bytes; done += piece)
        fill(map(piece), piece, done);
    pid_t child = fork();
    if (child == 0) {
        CHECK(not_zero(map(piece), piece) == 0);
        _exit(0);
    }
    wait_for(child);
    for (size_t next = 1; next <= 16; next++) {
        size_t len = next * 64 * KIB;
        for (int round = 0; round < 2; round++) {
            char *at = map(len);
            CHECK(not_zero(at, len) == 0);
            fill(at, len, next);
            CHECK(munmap(at, len) == 0);
        }
    }
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 18) << 20;
    if (argc > 2) {
        pieces(bytes, strtoull(argv[2], NULL, 10) * KIB);
        return 0;
    }
    int sizes = 0;
    for (size_t piece = 140; piece < 1500; piece += 52) {
        char text[24];
        snprintf(text, sizeof text, "%zu", piece);
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", argv[0], argc > 1 ? argv[1] : "18", text, (char *)NULL);
            _exit(8);
        }
        wait_for(child);
        sizes++;
    }
    printf("%d sizes\n", sizes);
    return 0;
}

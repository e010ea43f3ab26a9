/* Places that a program names for its mappings without MAP_FIXED, as compilers at run time,
 * allocators and probes name them: code must be where a jump reaches it, and data beyond the budget
 * are right.
 *
 * usage: hints MIB     data at a place far away
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE ((size_t)4096)
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define PLAIN (MAP_PRIVATE | MAP_ANONYMOUS)

static char *map(void *place, size_t bytes, int rights, int more)
{
    char *at = mmap(place, bytes, rights, PLAIN | more, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Writes a function that returns its argument and 7, and calls it. */
static void compile(char *at, size_t bytes)
{
#if defined(__x86_64__)
    static const unsigned char code[] = {0x8d, 0x47, 0x07, 0xc3};
#else
    static const unsigned char code[] = {0x00, 0x1c, 0x00, 0x11, 0xc0, 0x03, 0x5f, 0xd6};
#endif
    memcpy(at, code, sizeof code);
    CHECK(mprotect(at, bytes, PROT_READ | PROT_EXEC) == 0);
    __builtin___clear_cache(at, at + sizeof code);
    CHECK(((int (*)(int))at)(35) == 42);
}

/* A hole in paged memory is given out again at its place, and is zero. */
static void beside(size_t bytes)
{
    for (int rights = 0; rights < 2; rights++) {
        char *at = map(NULL, 4 * bytes, READ_WRITE, 0);
        fill(at, 4 * bytes, 1);
        CHECK(munmap(at + bytes, 2 * bytes) == 0);
        CHECK(map(at + bytes, bytes, rights ? READ_WRITE : PROT_NONE, MAP_NORESERVE) == at + bytes);
        if (!rights)
            CHECK(mprotect(at + bytes, bytes, READ_WRITE) == 0);
        CHECK(not_zero(at + bytes, bytes) == 0);
        fill(at + bytes, bytes, 2);
        /* A place in use is left alone. */
        char *other = map(at, bytes, READ_WRITE, 0);
        CHECK(other != at && not_zero(other, bytes) == 0);
        CHECK(differing(at, bytes, 1) == 0 && differing(at + bytes, bytes, 2) == 0);
        CHECK(munmap(at, 4 * bytes) == 0 && munmap(other, bytes) == 0);
    }
}

/* LuaJIT: 64 KiB within reach of its own code, at random places, one of which must be free. */
static char *near_code(void)
{
    size_t here = (size_t)near_code & ~(64 * KIB - 1);
    for (size_t tries = 0; tries < 32; tries++) {
        char *hint = (char *)here + (word(3, tries) % ((1 << 30) / (64 * KIB))) * 64 * KIB;
        char *at = map(hint, 64 * KIB, READ_WRITE, 0);
        if (at == hint) {
            compile(at, 64 * KIB);
            return at;
        }
        CHECK(munmap(at, 64 * KIB) == 0);
    }
    CHECK(!"no place near code");
    return NULL;
}

/* V8: a reservation near code, opened in parts, closed, given back. */
static void cage(void)
{
    size_t bytes = 128 * MIB, here = (size_t)cage & ~(MIB - 1);
    for (size_t tries = 1; tries < 12; tries++) {
        char *hint = (char *)here + tries * bytes;
        char *at = map(hint, bytes, PROT_NONE, MAP_NORESERVE);
        if (at == hint) {
            CHECK(mprotect(at + MIB, MIB, READ_WRITE) == 0);
            compile(at + MIB, MIB);
            CHECK(munmap(at, bytes) == 0);
            return;
        }
        CHECK(munmap(at, bytes) == 0);
    }
    CHECK(!"no place for a cage");
}

static void low(void)
{
#ifdef MAP_32BIT
    char *at = map(NULL, 64 * KIB, READ_WRITE, MAP_32BIT);
    CHECK((size_t)at + 64 * KIB <= (size_t)1 << 31);
    compile(at, 64 * KIB);
    CHECK(munmap(at, 64 * KIB) == 0);
#endif
}

/* An allocator that prefers a place, but takes any that is aligned as that. */
static void preferred(size_t bytes)
{
    char *at = map((char *)0x20000000000, bytes, READ_WRITE, MAP_NORESERVE);
    CHECK((size_t)at % (4 * MIB) == 0);
    for (size_t index = 0; index < bytes / MIB; index++)
        fill(at + index * MIB, MIB, index);
    for (size_t index = 0; index < bytes / MIB; index++)
        CHECK(differing(at + index * MIB, MIB, index) == 0);
    CHECK(munmap(at, bytes) == 0);
}

/* Heaps of many small pieces at random places, of which none insists on its own. */
static void scattered(size_t bytes)
{
    size_t count = bytes / (256 * KIB);
    char **pieces = malloc(count * sizeof *pieces);
    for (size_t index = 0; index < count; index++) {
        char *hint = (char *)(word(5, index) % ((size_t)1 << 46) / (256 * KIB) * (256 * KIB));
        pieces[index] = map(hint, 256 * KIB, PROT_NONE, MAP_NORESERVE);
        CHECK(mprotect(pieces[index], 256 * KIB, READ_WRITE) == 0);
        fill(pieces[index], 256 * KIB, index);
    }
    for (size_t index = 0; index < count; index++) {
        CHECK(differing(pieces[index], 256 * KIB, index) == 0);
        CHECK(munmap(pieces[index], 256 * KIB) == 0);
    }
    free(pieces);
}

/* A program that cannot do without its places. */
static void insisting(int rights)
{
    for (size_t tries = 0; tries < 200; tries++) {
        char *hint = (char *)(0x123400000000 + tries * MIB);
        char *at = map(hint, MIB, rights, MAP_NORESERVE);
        if (at == hint) {
            CHECK(mprotect(at, MIB, READ_WRITE) == 0);
            fill(at, MIB, tries);
            CHECK(differing(at, MIB, tries) == 0 && munmap(at, MIB) == 0);
            return;
        }
        CHECK(munmap(at, MIB) == 0);
    }
    CHECK(!"it never got its place");
}

int main(int count, char **arguments)
{
    size_t bytes = (size_t)atol(count > 1 ? arguments[1] : "16") * MIB;
    char *code = near_code();
    for (int round = 0; round < 2; round++) {
        beside(64 * KIB);
        beside(MIB + 5 * PAGE);
        cage();
        low();
        preferred(bytes);
        scattered(bytes);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(((int (*)(int))code)(1) == 8);
        near_code();
        beside(64 * KIB);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    insisting(PROT_NONE);
    insisting(READ_WRITE);
    near_code();
    puts("all places are right");
    return 0;
}

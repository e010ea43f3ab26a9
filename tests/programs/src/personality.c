/* A program that asks, before it grows, that what it may read may be executed too: the library's
 * own memory is mapped afterwards. What gets new rights meanwhile may be executed, and is not paged
 * until it gets others: a part of fixed size.
 *
 * usage: personality MIB, 8 or more
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PART (8 * MIB)

static char arrays[4 * MIB];

/* An array that may be executed, as assemblers' programs have them: more than the least budget. */
__asm__(".section .code_array,\"awx\",@nobits\n.globl code_array\n.align 4096\ncode_array: .zero 12 << 20\n.previous");
extern char code_array[];

static void change_rights(char *at, size_t bytes) {
    CHECK(mprotect(at, bytes, PROT_NONE) == 0 && mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    fill(code_array, 12 * MIB, 3);
    CHECK(personality(READ_IMPLIES_EXEC) >= 0);
    CHECK(personality(0xffffffff) == READ_IMPLIES_EXEC);
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    fill(data, bytes, 1);
    fill(arrays, sizeof arrays, 2);
    for (int round = 0; round < 2; round++) {
        CHECK(differing(data, bytes, 1) == 0 && differing(arrays, sizeof arrays, 2) == 0);
        /* The second time without. */
        change_rights(data, PART);
        change_rights(arrays + MIB - (uintptr_t)arrays % 4096, MIB);
        CHECK(mprotect(data, PART, PROT_READ | PROT_WRITE | 64) == -1 && errno == EINVAL);
        CHECK(mmap(data, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == data);
        fill(data, MIB, 1);
        CHECK(differing(data, bytes, 1) == 0 && differing(arrays, sizeof arrays, 2) == 0);
        pid_t child = fork();
        if (child == 0)
            _exit(differing(data, bytes, 1) != 0 || differing(arrays, sizeof arrays, 2) != 0);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        CHECK(personality(0) == (round == 0 ? READ_IMPLIES_EXEC : 0));
    }
    CHECK(differing(code_array, 12 * MIB, 3) == 0);
    puts("personality: ok");
    return 0;
}

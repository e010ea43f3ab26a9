/* A call by the instruction on paged memory, most of it out, which then must not hold other bytes.
 *
 * usage: direct_call MIB CALL     CALL: removes, unmaps, maps, moves, moves-pages, shrinks
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static long instruction(long number, void *at, size_t second, long third, long fourth, long fifth)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = fourth;
    register long r8 __asm__("r8") = fifth;
    register long r9 __asm__("r9") = 0;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(at), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#else
    return syscall(number, at, second, third, fourth, fifth, 0L);
#endif
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    size_t bytes = strtoull(argv[1], NULL, 10) * MIB;
    char *at = malloc(bytes), *call = argv[2];
    CHECK(at != NULL);
    fill(at, bytes, 1);
    /* Some of it is in, at its end. */
    char *from = (char *)(((uintptr_t)at + 4095) / 4096 * 4096) + MIB;
    size_t count = bytes - 2 * MIB;
    if (strcmp(call, "unmaps") == 0)
        instruction(SYS_munmap, from, MIB, 0, 0, 0);
    else if (strcmp(call, "maps") == 0)
        instruction(SYS_mmap, from, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
    else if (strcmp(call, "moves") == 0)
        instruction(SYS_mremap, from, MIB, 2 * MIB, MREMAP_MAYMOVE, 0);
    else if (strcmp(call, "moves-pages") == 0)
        instruction(SYS_mremap, from, MIB, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    else if (strcmp(call, "shrinks") == 0)
        instruction(SYS_mremap, from, MIB, 4096, 0, 0);
    else
        CHECK(instruction(SYS_madvise, from, count, MADV_DONTNEED, 0, 0) == 0 && not_zero(from, count) == 0);
    /* Who comes here has not been stopped. */
    puts("went on");
    return 0;
}

/* Memory beside the budget: shared, or executable; and not there any more when the program ends.
 *
 * beside shared MIB        fills shared memory, forks a child that reads it, unmaps it
 * beside code MIB          fills executable memory and unmaps it piece by piece
 * beside protected MIB     fills memory that it then may only read, and ends
 * beside copies MIB FILE   writes to a file of that size, mapped private, and ends
 * beside direct MIB        fills paged memory, and for a moment as much by calls past the library
 * beside hog MIB           fills shared memory, and ends
 * beside both MIB FILE     fills as much shared and as much paged memory, writes its process id to
 *                          FILE, and goes on until a signal ends it
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char *map(size_t bytes, int prot, int flags) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE | prot, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    fill(memory, bytes, 1);
    return memory;
}

/* A call by the instruction, where this file knows how; it needs no fifth and sixth argument but
 * those of a mapping without a file. */
static long instruction(long number, void *at, size_t second, long third, long fourth) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = fourth;
    register long r8 __asm__("r8") = -1;
    register long r9 __asm__("r9") = 0;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(at), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#else
    return syscall(number, at, second, third, fourth, -1L, 0L);
#endif
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20, piece = 256 << 10;
    if (strcmp(argv[1], "code") == 0) {
        char *memory = map(bytes, PROT_EXEC, MAP_PRIVATE);
        for (size_t at = 0; at < bytes; at += piece)
            CHECK(munmap(memory + at, piece) == 0);
        return 0;
    }
    if (strcmp(argv[1], "protected") == 0) {
        char *memory = map(bytes, 0, MAP_PRIVATE);
        CHECK(mprotect(memory, bytes, PROT_READ) == 0);
        return differing(memory, bytes, 1) != 0;
    }
    if (strcmp(argv[1], "copies") == 0) {
        int file = open(argv[3], O_RDWR);
        CHECK(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        CHECK(memory != MAP_FAILED);
        fill(memory, bytes, 1);
        return differing(memory, bytes, 1) != 0;
    }
    if (strcmp(argv[1], "direct") == 0) {
        char *paged = malloc(bytes);
        CHECK(paged != NULL);
        fill(paged, bytes, 2);
        long at = instruction(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        CHECK(at > 0);
        fill((char *)at, bytes, 1);
        usleep(200000);
        CHECK(instruction(SYS_munmap, (void *)at, bytes, 0, 0) == 0);
        return differing(paged, bytes, 2) != 0;
    }
    char *shared = map(bytes, 0, MAP_SHARED);
    if (strcmp(argv[1], "shared") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        int status = differing(shared, bytes, 1) != 0;
        if (child == 0)
            _exit(status);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(munmap(shared, bytes) == 0);
    }
    if (strcmp(argv[1], "both") == 0) {
        char *paged = malloc(bytes);
        CHECK(paged != NULL);
        fill(paged, bytes, 2);
        FILE *file = fopen(argv[3], "w");
        CHECK(file != NULL && fprintf(file, "%d\n", (int)getpid()) > 0 && fclose(file) == 0);
        for (;;)
            pause();
    }
    return 0;
}

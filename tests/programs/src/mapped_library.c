// A program with a library that is longer than the budget, and that makes calls about the program's
// memory by the system call instruction.
//
//   cc -shared -fPIC -DLIBRARY mapped_library.c -o liblong.so
//   cc mapped_library.c liblong.so -o mapped_library
#include "check.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define SIZE ((size_t)16 << 20)

int remove_mapping(void *at, size_t len);
unsigned char long_at(size_t at);

#ifdef LIBRARY
#define LONG ((size_t)40 << 20)

static const unsigned char bytes[LONG] = {[LONG / 2] = 5, [LONG - 1] = 7};

int remove_mapping(void *at, size_t len) {
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_munmap), "D"(at), "S"(len) : "rcx", "r11", "memory");
    return (int)answer;
}

unsigned char long_at(size_t at) {
    return bytes[LONG - 1 - at];
}
#else
int main(void) {
    CHECK(long_at(0) == 7 && long_at(1) == 0 && long_at(((size_t)20 << 20) - 1) == 5);
    for (int i = 0; i < 5; i++) {
        unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED && at[0] == 0 && at[SIZE - 1] == 0);
        memset(at, i + 1, SIZE);
        CHECK(at[SIZE / 2] == i + 1 && remove_mapping(at, SIZE) == 0);
    }
    puts("ok");
    return 0;
}
#endif

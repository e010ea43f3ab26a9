/* Code that the program makes in its own memory calls the kernel with pointers to pointers.
   Usage: made_code MIB */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __x86_64__
/* mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; syscall; ret */
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89,
                                     0xd6, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3};
#else
/* mov x8, x0; mov x0, x1; mov x1, x2; mov x2, x3; svc #0; ret */
static const uint32_t code[] = {0xaa0003e8, 0xaa0103e0, 0xaa0203e1, 0xaa0303e2, 0xd4000001, 0xd65f03c0};
#endif
/* Bytes of the largest page. */
#define PAGE 65536ul

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    size_t bytes = strtoul(arguments[1], NULL, 10) << 20;
    char *data = malloc(bytes);
    memset(data, 7, bytes);
    char *page = (char *)(((uintptr_t)data + bytes - 2 * PAGE) & ~(PAGE - 1));
    memcpy(page, code, sizeof code);
    __builtin___clear_cache(page, page + sizeof code);
    if (mprotect(page, PAGE, PROT_READ | PROT_EXEC))
        return perror("mprotect"), 2;
    long (*call)(long, long, const void *, long);
    memcpy(&call, &page, sizeof call);
    int ends[2], right = 0;
    if (pipe(ends))
        return 2;
    for (int i = 0; i < 50; i++) {
        char *part = data + bytes / 128 * i;
        for (size_t at = 0; at < bytes; at += 4096)
            (void)*(volatile char *)(data + (at + bytes / 2 + bytes / 128 * i) % bytes);
        struct iovec pieces[2] = {{part, 100}, {part + bytes / 4, 100}};
        char got[200];
        right += call(SYS_writev, ends[1], pieces, 2) == 200 && read(ends[0], got, 200) == 200 && got[150] == 7;
    }
    printf("%d of 50 calls are right\n", right);
    return right != 50;
}

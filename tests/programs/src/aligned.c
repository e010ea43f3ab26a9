/* A library, with -DLIBRARY, that asks the kernel by its own instruction which file is executed;
 * and a program that does so by two of them, one of which it loads later.
 *
 * usage: aligned LIBRARY
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "check.h"

long own_file(char *into, long bytes);

#ifdef LIBRARY
long own_file(char *into, long bytes)
{
#ifdef __x86_64__
    long answer = SYS_readlinkat;
    register long length __asm__("r10") = bytes;
    __asm__ volatile("syscall"
                     : "+a"(answer)
                     : "D"((long)AT_FDCWD), "S"("/proc/self/exe"), "d"(into), "r"(length)
                     : "rcx", "r11", "memory");
    return answer;
#else
    register long number __asm__("x8") = SYS_readlinkat, length __asm__("x3") = bytes, answer __asm__("x0") = AT_FDCWD;
    register const char *path __asm__("x1") = "/proc/self/exe";
    register char *to __asm__("x2") = into;
    __asm__ volatile("svc #0" : "+r"(answer) : "r"(number), "r"(path), "r"(to), "r"(length) : "memory");
    return answer;
#endif
}
#else
int main(int count, char **words)
{
    CHECK(count == 2);
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    long (*of_second)(char *, long) = (long (*)(char *, long))dlsym(library, "own_file");
    CHECK(of_second != NULL && of_second != own_file);
    char path[4096];
    long len = own_file(path, sizeof path);
    CHECK(len > 0);
    printf("%.*s\n", (int)len, path);
    len = of_second(path, sizeof path);
    CHECK(len > 0);
    printf("%.*s\n", (int)len, path);
    return 0;
}
#endif

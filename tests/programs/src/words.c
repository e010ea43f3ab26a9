/* A thread whose words are paged out when the thread ends: the kernel clears the word that
   CLONE_CHILD_CLEARTID names. Usage: words MIB */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "raw_call.h"

#define STACK (64 << 10)
#define FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM | CLONE_THREAD | \
               CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static char *data;
static size_t bytes;
static int turn[2];

/* The threads share the first thread's variables, so they only make these two calls. */
static int thread(void *unused) {
    char byte;
    (void)unused;
    raw_call(SYS_read, turn[0], (long)&byte, 1);
    raw_call(SYS_exit, 0, 0, 0);
    return 0;
}
#ifndef __aarch64__
static void begin(void) {
    thread(NULL);
}
#endif

static void walk(void) {
    for (int turn = 0; turn < 2; turn++)
        for (size_t at = 0; at < bytes; at += 4096)
            (void)*(volatile char *)(data + at);
}

static int ends(const char *name, volatile int *parent, volatile int *child) {
    walk();
    write(turn[1], "x", 1);
    /* To read the words now would bring them back into memory. */
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    for (int i = 0; i < 5000 && *child; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    printf("%s: the parent's word is %s, the child's %s\n", name, *parent > 0 ? "set" : "not set",
           *child ? "not cleared" : "cleared");
    return *parent <= 0 || *child;
}

int main(int count, char **arguments) {
    if (count != 2 || pipe(turn))
        return 2;
    bytes = strtoul(arguments[1], NULL, 10) << 20;
    data = malloc(bytes);
    memset(data, 1, bytes);
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    int failed = 0;
    int *words = (int *)(data + bytes / 3 / 4096 * 4096);
    walk();
    words[64] = 1, words[0] = 0;
    walk();
    if (clone(thread, stack + STACK, FLAGS, NULL, words, NULL, words + 64) < 0)
        return perror("clone"), 2;
    failed |= ends("clone", words, words + 64);
#ifndef __aarch64__
    /* A call by its number: the new thread returns to the address on its stack. On 64-bit Arm it
       would return to the one in a register, which is the first thread's. */
    words = (int *)(data + bytes / 2 / 4096 * 4096);
    struct clone_args *args = (void *)(data + bytes / 4 * 3 / 4096 * 4096);
    for (int i = 0; i < 2; i++) {
        words[64] = 1, words[0] = 0;
        void (**first)(void) = (void *)(stack + STACK - 16);
        *first = begin;
        if (i) {
            memset(args, 0, sizeof *args);
            *args = (struct clone_args){.flags = FLAGS, .stack = (uintptr_t)stack, .stack_size = STACK - 16,
                                        .parent_tid = (uintptr_t)words, .child_tid = (uintptr_t)(words + 64)};
        }
        walk();
        if ((i ? syscall(SYS_clone3, args, sizeof *args) : syscall(SYS_clone, FLAGS, first, words, words + 64, 0)) < 0)
            return perror("by number"), 2;
        failed |= ends(i ? "clone3 by number" : "clone by number", words, words + 64);
        words = (int *)(data + bytes / 8 * 5 / 4096 * 4096);
    }
#endif
    return failed;
}

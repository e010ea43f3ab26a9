/* Makes many contexts one after another, each with its stack at a different place of the heap.
   Usage: contexts COUNT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK (128 << 10)
#define MOST 700

static ucontext_t first, second;
static int runs;

static void work(void) {
    runs++;
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    char *others[MOST + 2];
    static int used, i;
    for (i = 0; i < atoi(arguments[1]); i++) {
        char *stack = malloc(STACK);
        getcontext(&second);
        second.uc_stack.ss_sp = stack;
        second.uc_stack.ss_size = STACK;
        second.uc_link = &first;
        makecontext(&second, work, 0);
        swapcontext(&first, &second);
        /* Another object takes the place in which the next stack would be. */
        if (i % 3 == 0)
            others[used++] = memset(malloc(STACK - 4096), 1, STACK - 4096);
        free(stack);
        if (i % 3 == 1)
            others[used++] = memset(malloc(STACK), 2, STACK);
        if (used > MOST)
            free(others[--used]);
    }
    printf("%d runs\n", runs);
    return 0;
}

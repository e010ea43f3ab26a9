/* What a page may do: tried, and the signal caught. */
#ifndef RIGHTS_H
#define RIGHTS_H
#include <setjmp.h>
#include <signal.h>

#include "check.h"

static __thread sigjmp_buf refused;

static inline void on_fault(int signal)
{
    (void)signal;
    siglongjmp(refused, 1);
}

static inline void catch_faults(void)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* Whether a word can be read, or written with what it holds. */
static inline int allows(volatile uint64_t *at, int writes)
{
    if (sigsetjmp(refused, 1))
        return 0;
    uint64_t now = *at;
    if (writes)
        *at = now;
    return 1;
}
#endif

/* Threads that begin, wait and are cancelled, stacks in paged memory, signals, and children, at
 * random: what each page holds is checked against a model. */
#define _GNU_SOURCE
#include "call_walk.h"

#include <linux/futex.h>
#include <semaphore.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/uio.h>
#include <ucontext.h>

struct scratch {
    int pipe[2], words[4];
    char text[2 * PAGE];
    sigjmp_buf jump;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_barrier_t barrier;
    pthread_rwlock_t shared;
    sem_t posted;
    uint64_t counter;
};

/* In paged memory: for a thread, and for another thread of control of a walker's, which is
 * `elsewhere` then. */
static char *stacks[THREADS], *other_stacks[THREADS];
static int is_elsewhere[THREADS];

static void ends(void *x)
{
    free(x);
}

static void *waits_for_its_end(void *scratch)
{
    struct scratch *s = scratch;
    char *kept = malloc(3000), got[1];
    fill(kept, 3000, 5);
    pthread_cleanup_push(ends, kept);
    pthread_barrier_wait(&s->barrier);
    struct iovec whole = {kept, 3000};
    /* Each of these is where it may be cancelled. */
    for (;;) {
        if (s->words[2] == 0)
            (void)!read(s->pipe[0], got, 1);
        else if (s->words[2] == 1)
            (void)!vmsplice(s->pipe[1], &whole, 1, 0);
        else
            close(dup2(s->pipe[0], s->words[3]));
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void *counts(void *scratch)
{
    struct scratch *s = scratch;
    pthread_barrier_wait(&s->barrier);
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&s->mutex);
        s->counter++;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_rwlock_rdlock(&s->shared);
        pthread_rwlock_unlock(&s->shared);
    }
    sem_post(&s->posted);
    while (__atomic_load_n(&s->words[0], __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &s->words[0], s->words[1], 0, NULL, NULL, 0);
    return scratch;
}

static void *ends_at_once(void *answer)
{
    return answer;
}

/* Threads, with stacks in paged memory or not, and what they wait for in paged memory. */
static void threads_meet(struct walker *w)
{
    struct scratch *s = w->scratch;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    int own = chance(w, 3);
    if (own)
        CHECK(pthread_attr_setstack(&attributes, stacks[w->index], STACK) == 0);
    CHECK(pthread_barrier_init(&s->barrier, NULL, 2) == 0);
    pthread_t thread;
    void *answer;
    if (chance(w, 3) == 0) {
        for (int i = 0; i < 50; i++) {
            CHECK(pthread_create(&thread, &attributes, ends_at_once, w) == 0);
            CHECK(pthread_join(thread, &answer) == 0 && answer == w);
        }
    } else if (chance(w, 3) == 0) {
        CHECK(pipe(s->pipe) == 0);
        s->words[2] = chance(w, 3);
        /* Cancelled before it closes that, it leaves it open. */
        s->words[3] = 2000 + w->index;
        CHECK(pthread_create(&thread, &attributes, waits_for_its_end, s) == 0);
        pthread_barrier_wait(&s->barrier);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
        close(s->words[3]);
        close(s->pipe[0]);
        close(s->pipe[1]);
    } else {
        pthread_mutex_init(&s->mutex, NULL);
        pthread_cond_init(&s->changed, NULL);
        pthread_rwlock_init(&s->shared, NULL);
        sem_init(&s->posted, chance(w, 2), 0);
        s->counter = 0;
        s->words[0] = 0;
        s->words[1] = chance(w, 2) ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
        CHECK(pthread_create(&thread, &attributes, counts, s) == 0);
        pthread_barrier_wait(&s->barrier);
        pthread_mutex_lock(&s->mutex);
        while (s->counter < 20)
            pthread_cond_wait(&s->changed, &s->mutex);
        pthread_mutex_unlock(&s->mutex);
        pthread_rwlock_wrlock(&s->shared);
        pthread_rwlock_unlock(&s->shared);
        CHECK(AGAIN(sem_wait(&s->posted)) == 0);
        for (int i = 0; i < 10; i++)
            check_page(w, chance(w, PAGES));
        __atomic_store_n(&s->words[0], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &s->words[0], s->words[1] == FUTEX_WAIT ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == s);
        pthread_mutex_destroy(&s->mutex);
        pthread_cond_destroy(&s->changed);
        pthread_rwlock_destroy(&s->shared);
        sem_destroy(&s->posted);
    }
    pthread_barrier_destroy(&s->barrier);
    pthread_attr_destroy(&attributes);
}

static void executes(struct walker *w)
{
    int status;
    pid_t child;
    char **words = (char **)w->scratch->text, *text = w->scratch->text + PAGE;
    strcpy(text, "/bin/sh");
    strcpy(text + 16, "-c");
    strcpy(text + 32, "exit 3");
    words[0] = text;
    words[1] = text + 16;
    words[2] = text + 32;
    words[3] = NULL;
    switch (chance(w, 4)) {
    case 0:
        child = vfork();
        if (child == 0) {
            execv(words[0], words);
            _exit(1);
        }
        break;
    case 1:
        CHECK(posix_spawn(&child, words[0], NULL, NULL, words, environ) == 0);
        break;
    case 2:
        child = fork();
        if (child == 0) {
            execv(words[0], words);
            _exit(1);
        }
        break;
    default:
        status = system(text + 32);
        CHECK(WEXITSTATUS(status) == 3);
        return;
    }
    CHECK(child > 0 && AGAIN(waitpid(child, &status, 0)) == child && status == 3 << 8);
}

/* Another thread of control on a stack in paged memory. */
static ucontext_t contexts[THREADS][2];
static void elsewhere(void)
{
    struct walker *w = walking;
    for (int i = 0; i < 3; i++) {
        check_page(w, chance(w, PAGES));
        swapcontext(&contexts[w->index][1], &contexts[w->index][0]);
    }
    is_elsewhere[w->index] = 1;
    if (chance(w, 8) == 0)
        forks(w);
    is_elsewhere[w->index] = 0;
}

static void swaps(struct walker *w)
{
    if (is_elsewhere[w->index])
        return;
    ucontext_t *both = contexts[w->index];
    CHECK(getcontext(&both[1]) == 0);
    both[1].uc_stack.ss_sp = other_stacks[w->index];
    both[1].uc_stack.ss_size = STACK;
    both[1].uc_link = &both[0];
    makecontext(&both[1], elsewhere, 0);
    for (int i = 0; i < 4; i++) {
        CHECK(swapcontext(&both[0], &both[1]) == 0);
        check_page(w, chance(w, PAGES));
    }
}

static void on_jump(int signal)
{
    (void)signal;
    siglongjmp(walking->scratch->jump, 1);
}

static void jumps(struct walker *w)
{
    if (sigsetjmp(w->scratch->jump, 1) == 0) {
        raise(SIGUSR1);
        CHECK(0);
    }
    check_page(w, chance(w, PAGES));
}

int main(int argc, char **argv)
{
    static const struct program of_threads = {
        .scratch_bytes = sizeof(struct scratch),
        .kinds = {{threads_meet, 1}, {forks, 12}, {executes, 12}, {swaps, 1}, {jumps, 1}, {moves, 20}, {check_all, 20}},
    };
    struct sigaction jump = {.sa_handler = on_jump};
    CHECK(sigaction(SIGUSR1, &jump, NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        stacks[i] = aligned_alloc(PAGE, STACK);
        other_stacks[i] = aligned_alloc(PAGE, STACK);
        CHECK(stacks[i] && other_stacks[i]);
    }
    return walk_all(&of_threads, argc, argv);
}

/* Mutexes that the kernel writes to itself: those that lend priority, and robust ones. They lie
 * among data that exceeds the budget.
 *
 * usage: mutexes MIB
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define MUTEXES 6
#define THREADS 4

static char *data;
static size_t bytes;
static char arrays[4 * MIB];

/* Goes over all of the data: what is not used meanwhile leaves memory. */
static void press(void) {
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < bytes; i += 4096)
            data[i]++;
}

static void make(pthread_mutex_t *mutex, int protocol, int robust) {
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, robust) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
    CHECK(pthread_mutexattr_destroy(&attributes) == 0);
}

/* What the C library asks of the kernel where threads contend. The mutex's first word is the
 * futex. */
static void kernel_locks(pthread_mutex_t *mutex) {
    make(mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    press();
    CHECK(syscall(SYS_futex, mutex, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0);
    press();
    CHECK(syscall(SYS_futex, mutex, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0);
    press();
    CHECK(syscall(SYS_futex, mutex, FUTEX_TRYLOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0);
    CHECK(*(pid_t *)mutex == gettid());
    CHECK(syscall(SYS_futex, mutex, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0);
    CHECK(pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    CHECK(pthread_mutex_destroy(mutex) == 0);
}

struct shared {
    pthread_mutex_t mutex;
    long count;
};

static struct shared *all[MUTEXES];
static long rounds;

static void *contend(void *thread) {
    unsigned seed = (unsigned)(long)thread * 7919 + 1;
    for (long round = 0; round < rounds; round++) {
        seed = seed * 1103515245 + 12345;
        struct shared *one = all[(seed >> 16) % MUTEXES];
        CHECK(pthread_mutex_lock(&one->mutex) == 0);
        one->count++;
        if (round % 16 == 0)
            sched_yield();
        CHECK(pthread_mutex_unlock(&one->mutex) == 0);
        if (round % 8 == 0)
            data[(seed >> 8) * (size_t)4096 % bytes]++;
    }
    return NULL;
}

static void threads_contend(void) {
    for (int i = 0; i < MUTEXES; i++) {
        all[i] = malloc(128 << 10);
        CHECK(all[i] != NULL);
        all[i]->count = 0;
        make(&all[i]->mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    }
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, contend, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    long sum = 0;
    for (int i = 0; i < MUTEXES; i++) {
        sum += all[i]->count;
        CHECK(pthread_mutex_destroy(&all[i]->mutex) == 0);
        free(all[i]);
    }
    CHECK(sum == THREADS * rounds);
}

static struct turns {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    long turn;
} *turns;

static void *take_turns(void *thread) {
    for (long round = 0; round < 3; round++) {
        CHECK(pthread_mutex_lock(&turns->mutex) == 0);
        while (turns->turn % THREADS != (long)thread)
            CHECK(pthread_cond_wait(&turns->changed, &turns->mutex) == 0);
        turns->turn++;
        press();
        CHECK(pthread_cond_broadcast(&turns->changed) == 0);
        CHECK(pthread_mutex_unlock(&turns->mutex) == 0);
    }
    return NULL;
}

/* A condition variable over a mutex that lends priority. */
static void condition(void) {
    turns = malloc(sizeof *turns);
    CHECK(turns != NULL);
    turns->turn = 0;
    make(&turns->mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    CHECK(pthread_cond_init(&turns->changed, NULL) == 0);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take_turns, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(turns->turn == 3 * THREADS);
    CHECK(pthread_cond_destroy(&turns->changed) == 0 && pthread_mutex_destroy(&turns->mutex) == 0);
    free(turns);
}

#define OWNED 64
static pthread_mutex_t *owned[OWNED];
static int stage;

static void *die(void *none) {
    for (int i = 0; i < OWNED; i++)
        CHECK(pthread_mutex_lock(owned[i]) == 0);
    __atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) != 2)
        usleep(1000);
    return none;
}

/* A thread ends while it has robust mutexes. */
static void owner_dies(int protocol) {
    for (int i = 0; i < OWNED; i++) {
        owned[i] = malloc(32 << 10);
        CHECK(owned[i] != NULL);
        make(owned[i], protocol, PTHREAD_MUTEX_ROBUST);
    }
    stage = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, die, NULL) == 0);
    while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) != 1)
        usleep(1000);
    press();
    __atomic_store_n(&stage, 2, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < OWNED; i++) {
        CHECK(pthread_mutex_trylock(owned[i]) == EOWNERDEAD);
        CHECK(pthread_mutex_consistent(owned[i]) == 0 && pthread_mutex_unlock(owned[i]) == 0);
        CHECK(pthread_mutex_destroy(owned[i]) == 0);
        free(owned[i]);
    }
}

int main(int argc, char **argv) {
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    rounds = (long)(bytes / MIB) * 100;
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    void *small = malloc(sizeof(pthread_mutex_t)), *large = malloc(2 * MIB);
    CHECK(small != NULL && large != NULL);
    kernel_locks(small);
    kernel_locks(large);
    kernel_locks((pthread_mutex_t *)(arrays + 2 * MIB));
    threads_contend();
    condition();
    owner_dies(PTHREAD_PRIO_NONE);
    owner_dies(PTHREAD_PRIO_INHERIT);
    free(small);
    free(large);
    puts("the kernel finds its mutexes: ok");
    return 0;
}

/* Owners of robust mutexes end: threads, before others wait and while they do, and a process. The
 * mutexes lie among data that exceeds the budget, and are out when the owner ends.
 *
 * usage: robust MIB
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define OWNED 32

static char *data;
static size_t bytes;
static pthread_mutex_t *owned[OWNED];
static int stage;

/* Goes over all of the data: what is not used meanwhile leaves memory. */
static void press(void) {
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < bytes; i += 4096)
            data[i]++;
}

static void make(pthread_mutex_t *mutex, int shared) {
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setpshared(&attributes, shared) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
    CHECK(pthread_mutexattr_destroy(&attributes) == 0);
}

static void reach(int next) {
    __atomic_store_n(&stage, next, __ATOMIC_SEQ_CST);
}

static void await(int wanted) {
    while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) != wanted)
        usleep(1000);
}

static void *owns(void *none) {
    for (int i = 0; i < OWNED; i++)
        CHECK(pthread_mutex_lock(owned[i]) == 0);
    reach(1);
    await(2);
    return none;
}

static void *waits(void *mutex) {
    return (void *)(long)pthread_mutex_lock(mutex);
}

static void recover(pthread_mutex_t *mutex) {
    CHECK(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
}

/* Some threads wait for mutexes of the owner while it ends. */
static void thread_ends(int waiting) {
    pthread_t owner, waiters[OWNED];
    stage = 0;
    CHECK(pthread_create(&owner, NULL, owns, NULL) == 0);
    await(1);
    for (int i = 0; i < waiting; i++)
        CHECK(pthread_create(&waiters[i], NULL, waits, owned[i]) == 0);
    press();
    reach(2);
    CHECK(pthread_join(owner, NULL) == 0);
    int died = 0;
    for (int i = 0; i < waiting; i++) {
        void *answer;
        /* The mutex is the waiter's, which has ended as well, as its next owner sees. */
        CHECK(pthread_join(waiters[i], &answer) == 0 && (long)answer == EOWNERDEAD);
    }
    press();
    for (int i = 0; i < OWNED; i++) {
        died += pthread_mutex_lock(owned[i]) == EOWNERDEAD;
        recover(owned[i]);
    }
    CHECK(died == OWNED);
    printf("a thread ended, %d waited: ok\n", waiting);
}

/* A process has a mutex in shared memory, and later ones in its own. */
static void process_ends(void) {
    pthread_mutex_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    make(shared, PTHREAD_PROCESS_SHARED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(pthread_mutex_lock(shared) == 0);
        for (int i = 0; i < OWNED; i++)
            CHECK(pthread_mutex_lock(owned[i]) == 0);
        press();
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 7 << 8);
    CHECK(pthread_mutex_lock(shared) == EOWNERDEAD);
    recover(shared);
    puts("a process ended: ok");
}

int main(int argc, char **argv) {
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) * MIB;
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    for (int i = 0; i < OWNED; i++) {
        owned[i] = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(owned[i] != MAP_FAILED);
        make(owned[i], PTHREAD_PROCESS_PRIVATE);
    }
    thread_ends(0);
    thread_ends(OWNED / 2);
    process_ends();
    puts("robust: ok");
    return 0;
}

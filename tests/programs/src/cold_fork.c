/* Forks while what the C library and the loader keep in small objects has long left memory:
 * streams, the locale, users' names, lists of libraries and of threads' variables. A fork's
 * child, and who forks, use them before the child has a pager. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <pwd.h>
#include <sys/wait.h>

#include "check.h"

enum { STREAMS = 48, PIECES = 64, PIECE = 60000, KEYS = 40, THREADS = 4, ROUNDS = 6 };

static size_t bytes;
static char *memory;
static FILE *streams[STREAMS];
static char *pieces[PIECES];
static pthread_key_t keys[KEYS];
static int stop;

/* More keys than a thread has room for: their values lie in a table of the heap. */
static void *sets_keys(void *value) {
    for (int i = 0; i < KEYS; i++)
        CHECK(pthread_setspecific(keys[i], value) == 0);
    return NULL;
}

/* Touches a part of the memory again and again, so that blocks leave while the others fork. */
static void *presses(void *unused) {
    volatile char *part = memory + bytes / 2;
    char sum = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t at = 0; at < bytes / 2; at += 4096)
            sum += part[at];
    return unused + (sum == 0);
}

/* Flushes all streams at once: it holds the lock of their list, and waits for pages of their
 * buffers. */
static void *flushes(void *unused) {
    enum { FILES = 16, BUFFER = 1 << 20 };
    FILE *files[FILES];
    for (int i = 0; i < FILES; i++) {
        CHECK((files[i] = tmpfile()) != NULL);
        CHECK(setvbuf(files[i], malloc(BUFFER), _IOFBF, BUFFER) == 0);
    }
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        for (int i = 0; i < FILES; i++) {
            rewind(files[i]);
            CHECK(fwrite(memory, 1, BUFFER / 2, files[i]) == BUFFER / 2);
        }
        CHECK(fflush(NULL) == 0);
    }
    return unused;
}

static void *sleeps(void *unused) {
    sets_keys(&stop);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        usleep(10000);
    return unused;
}

static void expect_all(uint64_t series) {
    CHECK(differing(memory, bytes, series) == 0);
    for (int i = 0; i < PIECES; i++)
        CHECK(differing(pieces[i], PIECE / 8 * 8, 100 + i) == 0);
    for (int i = 0; i < STREAMS; i++)
        CHECK(getc(streams[i]) == 0);
    CHECK(getpwnam("root") != NULL && getpwnam("root")->pw_uid == 0);
    CHECK(strcmp(setlocale(LC_CTYPE, NULL), "C.UTF-8") == 0);
}

int main(int argc, char **argv) {
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 128) << 20;
    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL);
    CHECK(getpwnam("root") != NULL);
    CHECK(dlopen("libgomp.so.1", RTLD_NOW) != NULL);
    for (int i = 0; i < KEYS; i++)
        CHECK(pthread_key_create(&keys[i], NULL) == 0);
    /* Spread over many blocks. */
    for (int i = 0; i < PIECES; i++) {
        CHECK((pieces[i] = malloc(PIECE)) != NULL);
        fill(pieces[i], PIECE / 8 * 8, 100 + i);
        if (i < STREAMS)
            CHECK((streams[i] = fopen("/dev/zero", "r")) != NULL);
    }
    pthread_t ended, others[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&ended, NULL, sets_keys, &stop) == 0 && pthread_join(ended, NULL) == 0);
        CHECK(pthread_create(&others[i], NULL, sleeps, NULL) == 0);
    }
    CHECK((memory = malloc(bytes)) != NULL);
    pthread_t presser, flusher;
    for (int round = 0; round < ROUNDS; round++) {
        fill(memory, bytes, round);
        if (round == ROUNDS / 2)
            CHECK(pthread_create(&presser, NULL, presses, NULL) == 0);
        CHECK(differing(memory, bytes, round) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            expect_all(round);
            _exit(40 + round);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 40 + round);
    }
    /* Children that do nothing, while the streams are flushed. */
    CHECK(pthread_create(&flusher, NULL, flushes, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(3);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 3 << 8);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(presser, NULL) == 0 && pthread_join(flusher, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(others[i], NULL) == 0);
    expect_all(ROUNDS - 1);
    puts("forks: ok");
    return 0;
}

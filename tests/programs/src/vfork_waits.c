/* A program whose thread is inside vfork most of the time: each child waits before it executes a
 * program. Another thread reads, checks and rewrites words meanwhile.
 *
 * usage: vfork_waits SECONDS MIB MILLISECONDS THREAD     THREAD is 1 if the second thread forks.
 * SIGUSR1 ends the time.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int seconds, ms, over;
static volatile sig_atomic_t is_late;
static size_t count;

static void pause_for(int milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static void end_the_time(int signal) {
    is_late = signal;
}

static void *forks(void *none) {
    for (time_t began = time(NULL); time(NULL) - began < seconds && !is_late;) {
        int status;
        pid_t child = vfork();
        if (child == 0) {
            pause_for(ms);
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        pause_for(ms / 4);
    }
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    return none;
}

static void *touches(void *memory) {
    uint64_t *words = memory, version = 0;
    for (; !__atomic_load_n(&over, __ATOMIC_SEQ_CST); version++)
        for (size_t i = 0; i < count; i++) {
            CHECK(words[i] == (version ? word(i, version - 1) : 0));
            words[i] = word(i, version);
        }
    for (size_t i = 0; i < count; i++)
        CHECK(words[i] == word(i, version - 1));
    return NULL;
}

int main(int number, char **arguments) {
    CHECK(number == 5);
    signal(SIGUSR1, end_the_time);
    seconds = atoi(arguments[1]), ms = atoi(arguments[3]);
    count = (size_t)atoi(arguments[2]) << 17;
    uint64_t *words = calloc(count, sizeof *words);
    int second = atoi(arguments[4]);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, second ? forks : touches, second ? NULL : words) == 0);
    second ? touches(words) : forks(NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    puts("0 wrong");
    return 0;
}

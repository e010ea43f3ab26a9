/* Cancels threads that wait in a call whose buffer is paged: what they must do at their end is done
   (`-fexceptions`), as C++ does it by destructors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int destroyed, begun;
static int pipes[2];
static char *data;

static void destroy(int *resource) {
    destroyed += *resource;
}
#define RESOURCE int resource __attribute__((cleanup(destroy))) = 1

static void *reads(void *unused) {
    RESOURCE;
    (void)unused;
    begun++;
    return read(pipes[0], data, 100) < 0 ? data : NULL;
}

static void *gets_one(void *unused) {
    RESOURCE;
    FILE *file = fdopen(dup(pipes[0]), "r");
    (void)unused;
    setvbuf(file, data + 8192, _IOFBF, 4096);
    begun++;
    return fgetc(file) < 0 ? data : NULL;
}

/* The call is the C library's, on words in paged memory. */
static void *waits_for_one(void *unused) {
    RESOURCE;
    pthread_mutex_t *mutex = (pthread_mutex_t *)(data + 16384);
    pthread_cond_t *never = (pthread_cond_t *)(data + 24576);
    (void)unused;
    pthread_mutex_init(mutex, NULL), pthread_cond_init(never, NULL);
    pthread_mutex_lock(mutex);
    begun++;
    for (;;)
        pthread_cond_wait(never, mutex);
}

int main(void) {
#ifdef __GLIBC__
    void *(*const begins[])(void *) = {reads, gets_one, waits_for_one};
#else
    /* In musl a stream cannot be cancelled. */
    (void)gets_one;
    void *(*const begins[])(void *) = {reads, waits_for_one};
#endif
    const size_t bytes = 64 << 20;
    data = malloc(bytes);
    memset(data, 1, bytes);
    if (pipe(pipes) != 0)
        return 1;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        pthread_t thread;
        int before = begun;
        pthread_create(&thread, NULL, begins[i], NULL);
        while (begun == before)
            usleep(1000);
        usleep(100000);
        pthread_cancel(thread);
        void *answer;
        pthread_join(thread, &answer);
        if (answer != PTHREAD_CANCELED)
            return 2;
    }
    printf("%d destructors\n", destroyed);
    return 0;
}

/* A program that reads and writes its own memory as a file, also in a thread and in a child. Then
 * the file's number is another file's, where a handler interrupts a read.
 *
 * usage: own_memory MIB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

enum { PART = 1 << 20, PAGE = 4096 };

static char *data, *got;
static size_t size;

static void reads(int file)
{
    for (size_t at = 0; at < size; at += PART) {
        off_t place = (off_t)(uintptr_t)(data + at);
        struct iovec pieces[] = {{got, PART / 3}, {got + PART / 3, PART - PART / 3}};
        switch (at / PART % 4) {
        case 0:
            CHECK(pread(file, got, PART, place) == PART);
            break;
        case 1:
            CHECK(preadv(file, pieces, 2, place) == PART);
            break;
        default:
            CHECK(lseek(file, place, SEEK_SET) == place);
            for (size_t done = 0; done < PART;) {
                struct iovec rest = {got + done, PART - done};
                ssize_t some = at / PART % 4 == 2 ? read(file, rest.iov_base, rest.iov_len) : readv(file, &rest, 1);
                CHECK(some > 0);
                done += (size_t)some;
            }
            CHECK(lseek(file, 0, SEEK_CUR) == place + PART);
        }
        CHECK(memcmp(got, data + at, PART) == 0);
        CHECK(differing(got, 8 * PAGE, at) == 0);
    }
}

static void writes(int file)
{
    for (size_t at = 0; at < size; at += PART) {
        fill(got, PART, at);
        struct iovec pieces[] = {{got, PAGE + 8}, {got + PAGE + 8, PART - PAGE - 8}};
        off_t place = (off_t)(uintptr_t)(data + at);
        switch (at / PART % 4) {
        case 0:
            CHECK(pwrite(file, got, PART, place) == PART);
            break;
        case 1:
            CHECK(pwritev(file, pieces, 2, place) == PART);
            break;
        default:
            CHECK(lseek(file, place - 1, SEEK_SET) == place - 1);
            CHECK(lseek(file, 1, SEEK_CUR) == place);
            for (size_t done = 0; done < PART;) {
                struct iovec rest = {got + done, PART - done};
                ssize_t some = at / PART % 4 == 2 ? write(file, rest.iov_base, rest.iov_len) : writev(file, &rest, 1);
                CHECK(some > 0);
                done += (size_t)some;
            }
            CHECK(lseek(file, 0, SEEK_CUR) == place + PART);
        }
    }
    for (size_t at = 0; at < size; at += PART)
        CHECK(differing(data + at, PART, at) == 0);
}

static void *reads_too(void *file)
{
    reads(*(int *)file);
    return NULL;
}

static void ticks(int signal)
{
    (void)signal;
}

/* The number is a pipe's now. */
static void is_a_pipe(int file)
{
    struct sigaction action = {.sa_handler = ticks};
    struct itimerval each = {{0, 10000}, {0, 10000}}, none = {{0, 0}, {0, 0}};
    char *into = data + size / 2;
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[0], file) == file);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &each, NULL) == 0);
    CHECK(read(file, into, 100) == -1 && errno == EINTR);
    CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
    CHECK(write(ends[1], "bytes", 6) == 6 && read(file, into, 100) == 6 && strcmp(into, "bytes") == 0);
}

int main(int count, char **words)
{
    CHECK(count > 1);
    size = (size_t)atoi(words[1]) * PART;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    got = malloc(2 * PART);
    CHECK(data != MAP_FAILED && got != NULL);
    memset(data, 1, size);
    int file = open("/proc/self/mem", O_RDWR), out = open("/proc/thread-self/mem", O_WRONLY);
    CHECK(file >= 0 && out >= 0);
    writes(file);
    reads(file);
    memset(data, 1, size);
    writes(out);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_too, &file) == 0 && pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int own = open("/proc/self/mem", O_RDWR);
        reads(own);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The file ignores rights, and has holes. */
    CHECK(mprotect(data + PART, PAGE, PROT_NONE) == 0);
    CHECK(pread(file, got, 2 * PART, (off_t)(uintptr_t)data) == 2 * PART);
    CHECK(differing(got + PART, PAGE, PART) == 0);
    CHECK(pread(file, got, PAGE, PAGE) == -1 && errno == EIO);
    is_a_pipe(file);
    puts("ok");
    return 0;
}

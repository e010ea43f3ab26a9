/* A program that reads and writes its own memory as a file, also in a thread, in a child and in a
 * handler, and by duplicates and many descriptors of the file. Then the file's number is another
 * file's, where a handler interrupts a read.
 *
 * usage: own_memory MIB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

/* Reads a part that is out, from the position that another descriptor of the file was set to, or
   the same one. Nobody else uses them. */
static void reads_part(int seeks, int reads, char *into, size_t at)
{
    off_t place = (off_t)(uintptr_t)(data + at);
    CHECK(lseek(seeks, place, SEEK_SET) == place);
    for (size_t done = 0; done < PART;) {
        ssize_t some = read(reads, into + done, PART - done);
        CHECK(some > 0);
        done += (size_t)some;
        CHECK(lseek(seeks, 0, SEEK_CUR) == place + (off_t)done);
    }
    CHECK(differing(into, PART, at) == 0);
}

static void *reads_by_itself(void *file)
{
    static char into[PART];
    for (size_t at = size; at > 0; at -= PART)
        reads_part(*(int *)file, *(int *)file, into, at - PART);
    return NULL;
}

static void *reads_too(void *file)
{
    reads(*(int *)file);
    return NULL;
}

/* Two threads beside each other, each by a descriptor of its own. */
static void beside(void)
{
    int files[2] = {open("/proc/self/mem", O_RDWR), open("/proc/self/mem", O_RDWR)};
    pthread_t thread;
    CHECK(files[0] >= 0 && files[1] >= 0);
    CHECK(pthread_create(&thread, NULL, reads_by_itself, &files[1]) == 0);
    for (size_t at = 0; at < size; at += PART)
        reads_part(files[0], files[0], got + PART, at);
    CHECK(pthread_join(thread, NULL) == 0 && close(files[0]) == 0 && close(files[1]) == 0);
}

/* Sends a descriptor to this process itself. */
static int received(int file)
{
    int ends[2], got_file = -1;
    char byte = 1, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET, control->cmsg_type = SCM_RIGHTS, control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &file, sizeof file);
    CHECK(sendmsg(ends[0], &header, 0) == 1 && recvmsg(ends[1], &header, 0) == 1);
    memcpy(&got_file, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof got_file);
    close(ends[0]), close(ends[1]);
    return got_file;
}

/* Duplicates, made before and after the position is set, share it. */
static void duplicates(void)
{
    int file = open("/proc/self/mem", O_RDWR), before = dup(file);
    size_t at = 0;
    reads_part(file, before, got, at);
    int all[] = {file, before, dup(file), dup2(before, 200), dup3(file, 201, O_CLOEXEC), fcntl(file, F_DUPFD, 300),
                 fcntl(before, F_DUPFD_CLOEXEC, 10), received(file)};
    int count = sizeof all / sizeof *all;
    for (int i = 0; i < count; i++) {
        CHECK(all[i] >= 0);
        at = (at + 5 * PART) % size;
        reads_part(all[i], all[(i + 1) % count], got, at);
    }
    memset(data, 1, size);
    off_t place = (off_t)(uintptr_t)(data + at);
    fill(got, PART, at);
    CHECK(lseek(all[0], place, SEEK_SET) == place && write(all[3], got, PAGE) == PAGE);
    CHECK(write(all[5], got + PAGE, PAGE) == PAGE && differing(data + at, 2 * PAGE, at) == 0);
    writes(all[2]);
    for (int i = 0; i < count; i++)
        CHECK(close(all[i]) == 0);
}

/* More descriptors than a program usually has of it, each with a position of its own. */
static void many(void)
{
    enum { MANY = 24 };
    int files[MANY];
    for (int i = 0; i < MANY; i++) {
        files[i] = open("/proc/self/mem", O_RDONLY);
        reads_part(files[i], files[i], got, (size_t)i * 3 * PART % size);
    }
    for (int i = 0; i < MANY; i++)
        CHECK(close(files[i]) == 0);
}

static volatile sig_atomic_t handled, due;

/* Positions a file and reads, in a handler. */
static void reads_there(int signal)
{
    static char there[PART];
    int error = errno, file = open("/proc/self/mem", O_RDONLY);
    (void)signal;
    reads_part(file, file, there, (size_t)handled * 7 % (size / PART) * PART);
    close(file);
    handled++;
    due = 0;
    errno = error;
}

static void in_a_handler(int file)
{
    struct sigaction action = {.sa_handler = reads_there, .sa_flags = SA_RESTART};
    struct itimerval soon = {{0, 0}, {0, 200}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    handled = 0;
    CHECK(raise(SIGALRM) == 0 && handled == 1);
    /* One signal at a time: the handler may take longer than any interval. */
    for (size_t at = 0; handled < 30; at = (at + PART) % size) {
        if (!due) {
            due = 1;
            CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        }
        reads_part(file, file, got, at);
    }
    while (due)
        usleep(1000);
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
    for (size_t at = 0; at < size; at += PART)
        fill(data + at, PART, at);
    /* A process sets its first position in a handler, or beside another thread. */
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        in_a_handler(open("/proc/self/mem", O_RDWR));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    beside();
    duplicates();
    many();
    in_a_handler(file);
    writes(file);
    reads(file);
    memset(data, 1, size);
    writes(out);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_too, &file) == 0 && pthread_join(thread, NULL) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int own = open("/proc/self/mem", O_RDWR);
        reads(own);
        _exit(0);
    }
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

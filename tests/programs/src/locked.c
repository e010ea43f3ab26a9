/* Memory that was locked, or was to be empty in a child, and no longer is: it must be paged again.
 *
 * usage: locked MIB         each way, with the private memory that is resident afterwards
 *        locked MIB most    how much can be locked piece by piece
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

enum { MIB = 1 << 20, PAGE = 4096 };

static char *data;
static size_t size;

static long resident(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        sscanf(line, "RssAnon: %ld", &kib);
    fclose(file);
    return kib >> 10;
}

/* Touches everything, and says what is resident then. */
static void say(const char *what)
{
    CHECK(differing(data, size, 1) == 0);
    printf("%s: %ld MiB\n", what, resident());
    fflush(stdout);
}

/* Locks piece by piece until that is refused. Returns the bytes. */
static size_t most(void)
{
    size_t at = 0;
    while (at < size && mlock(data + at, MIB) == 0)
        at += MIB;
    CHECK(at == size || errno == ENOMEM);
    return at;
}

static void in_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        say("child");
        CHECK(munlockall() == 0 && most() > 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **words)
{
    CHECK(count > 1);
    size = (size_t)atoi(words[1]) * MIB;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    fill(data, size, 1);
    if (count > 2) {
        printf("%zu MiB\n", most() / MIB);
        return 0;
    }
    for (size_t at = 0; at < size; at += MIB)
        CHECK(mlock(data + at, MIB) == 0 && munlock(data + at, MIB) == 0);
    say("munlock");
    for (size_t at = 0; at < size; at += MIB)
        CHECK(mlock2(data + at + PAGE, PAGE, MLOCK_ONFAULT) == 0 && munlock(data + at, MIB) == 0);
    say("of one page");
    for (size_t at = 0; at < size; at += MIB)
        CHECK(syscall(SYS_mlock, data + at, MIB) == 0 && syscall(SYS_munlock, data + at, MIB) == 0);
    say("by number");
    for (size_t at = 0; at < size; at += MIB) {
        /* Rights that change while the memory is locked, and before. */
        CHECK(mlock(data + at, MIB) == 0 && mprotect(data + at, MIB, PROT_READ) == 0);
        CHECK(munlock(data + at, MIB) == 0 && mlock(data + at, MIB) == 0);
        CHECK(mprotect(data + at, MIB, PROT_READ | PROT_WRITE) == 0 && munlock(data + at, MIB) == 0);
    }
    say("rights");
    for (size_t at = 0; at < size; at += MIB) {
        CHECK(madvise(data + at, MIB, MADV_WIPEONFORK) == 0 && mlock(data + at, MIB) == 0);
        CHECK(munlock(data + at, MIB) == 0 && madvise(data + at, MIB, MADV_KEEPONFORK) == 0);
    }
    say("wiped");
    for (size_t at = 0; at < size; at += MIB) {
        CHECK(mlock(data + at, MIB) == 0);
        char *over = mmap(data + at, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(over == data + at && not_zero(over, MIB) == 0);
    }
    fill(data, size, 1);
    say("mapped over");
    most();
    in_child();
    CHECK(munlockall() == 0);
    say("munlockall");
    CHECK(madvise(data, size, MADV_MERGEABLE) == 0 || errno == EINVAL);
    printf("merged: %s\n", madvise(data, size, MADV_MERGEABLE) == 0 ? "yes" : "no");
    return 0;
}

/* A program that reads and writes its own memory as a file.
 *
 * usage: own_memory MIB [offsets]: only by calls that name an offset
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "check.h"

enum { PART = 1 << 20, PAGE = 4096 };

static char *data, *got;
static size_t size;
static int ways = 4;

static void reads(int file)
{
    for (size_t at = 0; at < size; at += PART) {
        off_t place = (off_t)(uintptr_t)(data + at);
        struct iovec pieces[] = {{got, PART / 3}, {got + PART / 3, PART - PART / 3}};
        switch (at / PART % (size_t)ways) {
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
        if (at / PART % 2 == 0)
            CHECK(pwrite(file, got, PART, place) == PART);
        else
            CHECK(pwritev(file, pieces, 2, place) == PART);
    }
    for (size_t at = 0; at < size; at += PART)
        CHECK(differing(data + at, PART, at) == 0);
}

int main(int count, char **words)
{
    CHECK(count > 1);
    size = (size_t)atoi(words[1]) * PART;
    if (count > 2)
        ways = 2;
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
    reads(file);
    /* The file ignores rights, and has holes. */
    CHECK(mprotect(data + PART, PAGE, PROT_NONE) == 0);
    CHECK(pread(file, got, 2 * PART, (off_t)(uintptr_t)data) == 2 * PART);
    CHECK(differing(got + PART, PAGE, PART) == 0);
    CHECK(pread(file, got, PAGE, PAGE) == -1 && errno == EIO);
    puts("ok");
    return 0;
}

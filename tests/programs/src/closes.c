/* Closes all descriptors but the first three, by number (`syscall`), while most of its memory is
 * out, and reads that memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>

#include "check.h"

int main(void) {
    size_t bytes = (size_t)96 << 20;
    char *at = malloc(bytes);
    CHECK(at != NULL);
    fill(at, bytes, 1);
    int own = open("/dev/null", O_RDONLY);
    CHECK(own >= 3);
    CHECK(syscall(SYS_close_range, 3u, UINT_MAX, 0u) == 0);
    CHECK(fcntl(own, F_GETFD) == -1 && errno == EBADF);
    for (long number = 3; number < 1024; number++)
        syscall(SYS_close, number);
    CHECK(differing(at, bytes, 1) == 0);
    return 0;
}

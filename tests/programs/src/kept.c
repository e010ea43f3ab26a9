/* A process that is not paged yet, and frees large blocks again and again: what its malloc keeps of
 * them counts.
 *
 * usage: kept MIB     what it may have in memory at most
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"

/* MiB in memory at most, until now. */
static long peak(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (kib < 0 && fgets(line, sizeof line, status))
        sscanf(line, "VmHWM: %ld", &kib);
    fclose(status);
    CHECK(kib > 0);
    return kib / 1024;
}

int main(int argc, char **argv) {
    long most = argc > 1 ? strtol(argv[1], NULL, 10) : 48;
    /* Less than half of the budget, so that there is no pager, and zero each time, so that
     * nothing kept will do. */
    size_t size = (size_t)(most - 32) * 3 / 8 << 20;
    for (int round = 0; round < 12; round++) {
        char *at = calloc(1, size);
        CHECK(at != NULL && not_zero(at, size) == 0);
        memset(at, 1, size);
        free(at);
    }
    if (peak() > most) {
        fprintf(stderr, "%ld MiB were in memory, of %ld at most\n", peak(), most);
        return 1;
    }
    puts("kept: ok");
    return 0;
}

/* Takes memory at an even pace, and counts at the end what it has put there.

   grows MIB MS   MIB steps of 1 MiB, and this pause after each; prints the number of right words. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORDS = (1 << 20) / 8 };

int main(int count, char **given) {
    if (count != 3) return 2;
    int mib = atoi(given[1]), ms = atoi(given[2]);
    uint64_t **parts = malloc(mib * sizeof *parts), right = 0;
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    for (int part = 0; part < mib; part++) {
        parts[part] = malloc(WORDS * 8);
        if (!parts[part]) return 3;
        for (int at = 0; at < WORDS; at++) parts[part][at] = (uint64_t)part * WORDS + at;
        nanosleep(&pause, NULL);
    }
    for (int part = 0; part < mib; part++)
        for (int at = 0; at < WORDS; at++) right += parts[part][at] == (uint64_t)part * WORDS + at;
    printf("%llu\n", (unsigned long long)right);
    return 0;
}

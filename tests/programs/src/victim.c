/* Fills memory that is hard to compress, checks it, and goes on until a signal ends it.
 *
 * victim MIB once        fills, checks, exits 0
 * victim MIB segv        fills, checks, writes through a null pointer
 * victim MIB FILE        fills, writes its process id to FILE, then checks and refills without end
 */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    char *memory = malloc(bytes);
    CHECK(memory != NULL);
    fill(memory, bytes, 1);
    if (strcmp(argv[2], "once") == 0 || strcmp(argv[2], "segv") == 0) {
        CHECK(differing(memory, bytes, 1) == 0);
        if (argv[2][0] == 's')
            *(volatile int *)NULL = 1;
        return 0;
    }
    char name[4096];
    CHECK(snprintf(name, sizeof name, "%s.part", argv[2]) < (int)sizeof name);
    FILE *file = fopen(name, "w");
    CHECK(file != NULL && fprintf(file, "%d\n", (int)getpid()) > 0 && fclose(file) == 0);
    CHECK(rename(name, argv[2]) == 0);
    for (uint64_t series = 1;; series++) {
        CHECK(differing(memory, bytes, series) == 0);
        fill(memory, bytes, series + 1);
    }
}

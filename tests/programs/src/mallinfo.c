/* What the heap says of itself is what the program took.
 *
 * usage: mallinfo MIB
 */
#define _GNU_SOURCE
#include <malloc.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define SIZE 200

/* Bytes in use, large objects too, that differ from `bytes` by a tenth and 64 KiB at most. */
static int is_in_use(struct mallinfo2 before, size_t bytes)
{
    struct mallinfo2 now = mallinfo2();
    size_t used = now.uordblks + now.hblkhd - before.uordblks - before.hblkhd;
    CHECK(now.uordblks + now.fordblks == now.arena);
    return used + (64 << 10) >= bytes && used <= bytes + bytes / 10 + (64 << 10);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) * MIB, many = bytes / SIZE;
    char **all = malloc(many * sizeof *all);
    struct mallinfo2 before = mallinfo2();
    for (size_t index = 0; index < many; index++)
        fill(all[index] = malloc(SIZE), SIZE, index);
    CHECK(is_in_use(before, bytes));
    puts("small: ok");
    char *large = malloc(8 * MIB), *medium = malloc(100000);
    CHECK(large != NULL && medium != NULL && is_in_use(before, bytes + 8 * MIB + 100000));
    CHECK(mallinfo2().hblks == before.hblks + 1);
    large = realloc(large, 16 * MIB);
    CHECK(large != NULL && is_in_use(before, bytes + 16 * MIB + 100000));
    puts("large: ok");
    for (size_t index = 0; index < many; index++) {
        CHECK(differing(all[index], SIZE, index) == 0);
        free(all[index]);
    }
    free(large);
    free(medium);
    CHECK(is_in_use(before, 0));
    struct mallinfo few = mallinfo();
    CHECK((unsigned)few.arena == (unsigned)mallinfo2().arena);
    free(all);
    puts("given back: ok");
    return 0;
}

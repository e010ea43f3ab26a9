/* Objects of many sizes that come and go, whoever gives them.
 *
 * usage: churn MIB
 */
#include "check.h"

#define MIB ((size_t)1 << 20)

static size_t size_of(size_t index)
{
    return index % 100 == 99 ? 40000 : 16 + word(0, index) % 1500 / 8 * 8;
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) * MIB, many = bytes / 1160;
    char **all = calloc(many, sizeof *all);
    for (size_t index = 0; index < many; index++)
        fill(all[index] = malloc(size_of(index)), size_of(index), index);
    for (size_t index = 0; index < many; index++) {
        CHECK(differing(all[index], size_of(index), index) == 0);
        if (index % 3 == 0)
            free(all[index]);
    }
    for (size_t index = 0; index < many; index += 3)
        fill(all[index] = malloc(size_of(index + 1)), size_of(index + 1), index);
    for (size_t index = 0; index < many; index++) {
        size_t size = size_of(index % 3 == 0 ? index + 1 : index);
        CHECK(differing(all[index], size, index) == 0);
        if (index % 8 == 5) {
            all[index] = realloc(all[index], size + 500);
            CHECK(all[index] != NULL && differing(all[index], size, index) == 0);
        }
    }
    for (size_t index = 0; index < many; index++)
        free(all[index]);
    free(all);
    puts("ok");
    return 0;
}

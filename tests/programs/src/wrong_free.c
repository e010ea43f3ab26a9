/* Gives `free` or `realloc` what is no allocation, while it pages.
 *
 * wrong_free twice BYTES | inside BYTES | resize BYTES       it is to be stopped before the last
 *                                                            line
 */
#include "check.h"

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t size = strtoull(argv[2], NULL, 10);
    /* So many that they do not fit: what is given back may have left memory. */
    enum { ALL = 64 << 20 };
    char **all = malloc(ALL / size * sizeof *all);
    CHECK(all != NULL);
    for (size_t i = 0; i < ALL / size; i++) {
        CHECK((all[i] = malloc(size)) != NULL);
        memset(all[i], (int)i, size);
    }
    char *volatile wrong = all[7];
    if (strcmp(argv[1], "twice") == 0) {
        free(wrong);
        free(wrong);
    } else if (strcmp(argv[1], "inside") == 0) {
        free(wrong + 16);
    } else {
        free(wrong);
        wrong = realloc(wrong, 2 * size);
    }
    puts("not stopped");
    return 0;
}

/* Fills and checks memory, and ends with status 3 in one of the ways that C has.
 *
 * ending HOW MIB     HOW is return, exit, _exit, _Exit or quick_exit
 */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    char *memory = malloc(bytes);
    CHECK(memory != NULL);
    fill(memory, bytes, 1);
    CHECK(differing(memory, bytes, 1) == 0);
    const char *how = argv[1];
    if (strcmp(how, "exit") == 0)
        exit(3);
    if (strcmp(how, "_exit") == 0)
        _exit(3);
    if (strcmp(how, "_Exit") == 0)
        _Exit(3);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(3);
    return strcmp(how, "return") == 0 ? 3 : 2;
}

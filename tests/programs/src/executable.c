/* Fills MIB of memory that may be executed, as a just-in-time compiler's or a Lisp's heap: it is
 * not paged.
 *
 * executable MIB
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "check.h"

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    fill(memory, bytes, 1);
    CHECK(differing(memory, bytes, 1) == 0);
    return 0;
}

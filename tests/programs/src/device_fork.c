/* Forks with a block device as the store of the C interface: the child keeps its blocks elsewhere.
 *
 * usage: device_fork DEVICE MIB BUDGET_MIB
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <terapage.h>

#include "check.h"

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    struct tera_options options = TERA_OPTIONS_INIT;
    options.store = argv[1];
    options.memory = strtoull(argv[3], NULL, 10) << 20;
    CHECK(tera_init(&options) == 0);
    char *data = tera_malloc(bytes);
    CHECK(data != NULL);
    fill(data, bytes, 1);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(differing(data, bytes, 1) == 0);
            fill(data, bytes, 2);
            _exit(differing(data, bytes, 2) != 0);
        }
        CHECK(differing(data, bytes, 1) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(differing(data, bytes, 1) == 0);
    }
    tera_free(data);
    return 0;
}

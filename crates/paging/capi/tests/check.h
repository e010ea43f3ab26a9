/* Checks for the test programs: what did not hold is printed, with the library's message, and
 * the program fails. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdio.h>
#include <terapage.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s (errno %d, %s)\n", __LINE__, #what, errno, tera_error()); \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#endif

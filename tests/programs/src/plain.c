/* A small program that has the addresses of malloc and free. With an argument it aborts. */
#include <stdlib.h>
#include <string.h>

char *marker;

int main(int argc, char **argv)
{
    void *(*volatile take)(size_t) = malloc;
    void (*volatile give)(void *) = free;
    (void)argv;
    if (getenv("PATH") == NULL)
        return 3;
    marker = take(100);
    strcpy(marker, "in the core");
    if (argc > 1)
        abort();
    give(marker);
    return 0;
}

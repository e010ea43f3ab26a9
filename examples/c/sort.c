/*
 * Sorts a file of 64-bit numbers where it is, in a budget smaller than it.
 *
 *     cc sort.c $(pkg-config --cflags --libs terapage) -o sort
 *     ./sort numbers.u64 256        # MiB of memory
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terapage.h>

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tera_error());
    exit(errno == EPERM || errno == ENOSYS ? 77 : 1);
}

/* Merges the sorted halves [0, half) and [half, count) of `from` into `to`. */
static void merge(uint64_t *to, const uint64_t *from, size_t half, size_t count)
{
    size_t left = 0, right = half;
    for (size_t at = 0; at < count; at++)
        to[at] = right == count || (left < half && from[left] <= from[right]) ? from[left++] : from[right++];
}

/* Sorts `numbers`, with room for as many in `spare`. Both are streamed, which is what paging
 * likes. */
static void sort(uint64_t *numbers, uint64_t *spare, size_t count)
{
    if (count < 32) {
        for (size_t end = 1; end < count; end++)
            for (size_t at = end; at > 0 && numbers[at - 1] > numbers[at]; at--) {
                uint64_t number = numbers[at];
                numbers[at] = numbers[at - 1];
                numbers[at - 1] = number;
            }
        return;
    }
    size_t half = count / 2;
    sort(numbers, spare, half);
    sort(numbers + half, spare + half, count - half);
    memcpy(spare, numbers, count * sizeof *numbers);
    merge(numbers, spare, half, count);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: sort FILE MIB\n");
        return 2;
    }
    struct tera_options options = TERA_OPTIONS_INIT;
    options.memory = strtoull(argv[2], NULL, 10) << 20;
    if (tera_init(&options) != 0)
        fail("tera_init");

    size_t len;
    uint64_t *numbers = tera_map_file(argv[1], 0, 0, TERA_RDWR, &len);
    if (!numbers)
        fail("tera_map_file");
    uint64_t *spare = tera_malloc(len);
    if (!spare)
        fail("tera_malloc");
    size_t count = len / sizeof *numbers;
    sort(numbers, spare, count);
    tera_free(spare);
    for (size_t at = 1; at < count; at++)
        if (numbers[at - 1] > numbers[at]) {
            fprintf(stderr, "number %zu is out of order\n", at);
            return 1;
        }
    if (tera_unmap(numbers) != 0)
        fail("tera_unmap");

    struct tera_stats stats;
    tera_stats(&stats);
    printf("%zu numbers, %llu MiB at most in memory, %llu MiB read, %llu MiB written\n", count,
           (unsigned long long)stats.resident_peak_bytes >> 20, (unsigned long long)stats.page_in_bytes >> 20,
           (unsigned long long)stats.page_out_bytes >> 20);
    return stats.resident_peak_bytes <= options.memory ? 0 : 1;
}

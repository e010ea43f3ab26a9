/* A blocked product of square matrices of doubles: three arrays, gone over again and again. */
#include <stdio.h>
#include <stdlib.h>

enum { TILE = 64 };

int main(int argc, char **argv) {
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) / TILE * TILE : 1536;
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = calloc(n * n, sizeof *c);
    if (!a || !b || !c) return 1;
    for (size_t at = 0; at < n * n; at++) {
        a[at] = (double)(at % 1013) / 7;
        b[at] = (double)(at % 733) / 3;
    }
    for (size_t i0 = 0; i0 < n; i0 += TILE)
        for (size_t k0 = 0; k0 < n; k0 += TILE)
            for (size_t j0 = 0; j0 < n; j0 += TILE)
                for (size_t i = i0; i < i0 + TILE; i++)
                    for (size_t k = k0; k < k0 + TILE; k++)
                        for (size_t j = j0; j < j0 + TILE; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    double sum = 0;
    for (size_t at = 0; at < n * n; at += 97) sum += c[at];
    printf("%.6e\n", sum);
}

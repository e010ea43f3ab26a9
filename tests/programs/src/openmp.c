/* Static arrays (bss) shared by the threads of OpenMP. All values are integers, so sums do not
 * depend on order. */
#include <stdint.h>
#include <stdio.h>

#ifndef N
#define N (4L << 20)
#endif

static int64_t a[N], b[N], c[N];

int main(void) {
    int64_t sum = 0, wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (long i = 0; i < N; i++)
        wrong += a[i] != 0 || b[i] != 0 || c[i] != 0;
#pragma omp parallel for
    for (long i = 0; i < N; i++) {
        a[i] = i;
        b[i] = 3 * i + 1;
    }
    for (int pass = 0; pass < 2; pass++) {
#pragma omp parallel for
        for (long i = 0; i < N; i++)
            c[i] = a[i] + 7 * b[i];
#pragma omp parallel for
        for (long i = 1; i < N - 1; i++)
            a[i] = (c[i - 1] ^ c[i]) + c[i + 1];
    }
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < N; i++)
        sum += a[i] ^ b[i] ^ c[i];
    printf("not zero at first: %ld, checksum %ld\n", (long)wrong, (long)sum);
    return wrong != 0;
}

/* direct FILE MIB READS
 *
 * Reads past the page cache (O_DIRECT) into memory that is paged, while threads drive blocks out.
 * Such a read pins its pages and the device writes them, whatever the page tables say: a block that
 * leaves in mid-read must not lose what arrives.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

enum { PIECE = 1 << 20, BUFFERS = 8, THREADS = 2 };

ssize_t __pread_chk(int fd, void *at, size_t len, off_t offset, size_t room);

static const size_t noise_bytes = 40u << 20;
static char *noise;
static atomic_bool over;

/* Touches its half of the noise at random until all is over. */
static void *drive_out(void *half) {
    char *mine = noise + *(size_t *)half * (noise_bytes / THREADS);
    for (uint64_t i = 0; !over; i++)
        mine[word(*(size_t *)half, i) % (noise_bytes / THREADS)]++;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t pieces = strtoull(argv[2], NULL, 10), reads = strtoull(argv[3], NULL, 10);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    CHECK(fd >= 0 && unlink(argv[1]) == 0);
    char *buffers = aligned_alloc(4096, (size_t)PIECE * BUFFERS);
    noise = malloc(noise_bytes);
    CHECK(buffers != NULL && noise != NULL);
    for (size_t piece = 0; piece < pieces; piece++) {
        fill(buffers, PIECE, piece);
        CHECK(pwrite(fd, buffers, PIECE, piece * PIECE) == PIECE);
    }
    memset(noise, 1, noise_bytes);
    pthread_t threads[THREADS];
    size_t halves[THREADS] = {0, 1}, wrong = 0, wrong_words = 0;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, drive_out, &halves[i]) == 0);
    for (size_t i = 0; i < reads; i++) {
        size_t piece = word(5, i) % pieces;
        char *to = buffers + i % BUFFERS * PIECE;
        memset(to, 0xee, PIECE);
        /* As it is called where _FORTIFY_SOURCE is set, too. */
        ssize_t got = i % 2 ? pread(fd, to, PIECE, piece * PIECE) : __pread_chk(fd, to, PIECE, piece * PIECE, PIECE);
        CHECK(got == PIECE);
        size_t differ = differing(to, PIECE, piece);
        wrong += differ != 0;
        wrong_words += differ;
    }
    over = 1;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (wrong > 0)
        fprintf(stderr, "%zu of %zu direct reads lost bytes, %zu words\n", wrong, reads, wrong_words);
    CHECK(close(fd) == 0);
    free(noise);
    free(buffers);
    return wrong > 0 ? 9 : 0;
}

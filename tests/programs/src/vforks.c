/* Children of vfork, which borrow their parent's memory: what they map and unmap, and that a parent
 * goes on when they are killed meanwhile.
 *
 * usage: vforks MIB
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define ROUNDS 600
#define PIECE ((size_t)1 << 20)

static volatile pid_t child;
static volatile int over;

static char *map(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *kills(void *none) {
    for (uint64_t i = 0; !over; i++) {
        pid_t now = child;
        if (now > 0) {
            for (volatile uint64_t spins = word(1, i) % 4000; spins; spins--)
                ;
            kill(now, SIGKILL);
        }
        sched_yield();
    }
    return none;
}

static int status_of(pid_t of) {
    int status;
    CHECK(waitpid(of, &status, 0) == of);
    return status;
}

/* What a child unmaps is unmapped, what it maps is mapped, and other calls are done or refused. */
static void borrows(char *data) {
    char *volatile made = NULL;
    volatile int advised = 0, protected = 0;
    pid_t of = vfork();
    if (of == 0) {
        char *own = map(2 * PIECE);
        if (own == MAP_FAILED)
            _exit(1);
        fill(own, PIECE, 9);
        made = own;
        if (munmap(own + PIECE, PIECE) != 0 || munmap(data + PIECE, PIECE) != 0)
            _exit(2);
        advised = madvise(data, PIECE, MADV_WILLNEED) == 0;
        protected = mprotect(data, PIECE, PROT_READ | PROT_WRITE) == 0 || errno == ENOMEM;
        _exit(differing(data, PIECE, 0) || differing(own, PIECE, 9) ? 3 : 0);
    }
    CHECK(of > 0 && status_of(of) == 0 && advised && protected);
    CHECK(mprotect(data + PIECE, PIECE, PROT_READ | PROT_WRITE) == -1 && errno == ENOMEM);
    CHECK(differing(data, PIECE, 0) == 0 && differing(made, PIECE, 9) == 0 && munmap(made, PIECE) == 0);
    char *again = mmap(data + PIECE, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == data + PIECE && not_zero(again, PIECE) == 0);
    fill(again, PIECE, 1);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    size_t pieces = (size_t)atoi(argv[1]);
    char *data = map(pieces * PIECE);
    CHECK(data != MAP_FAILED);
    for (size_t i = 0; i < pieces; i++)
        fill(data + i * PIECE, PIECE, i);
    for (int i = 0; i < 4; i++)
        borrows(data);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, kills, NULL) == 0);
    int killed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pid_t of = vfork();
        if (of == 0) {
            child = getpid();
            for (int j = 0; j < 200; j++) {
                char *own = map(16 * 4096);
                munmap(own, 16 * 4096);
                madvise(data, PIECE, MADV_WILLNEED);
            }
            child = 0;
            _exit(0);
        }
        child = 0;
        CHECK(of > 0);
        killed += WIFSIGNALED(status_of(of));
        char *own = map(PIECE);
        CHECK(own != MAP_FAILED && munmap(own, PIECE) == 0);
    }
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < pieces; i++)
        CHECK(differing(data + i * PIECE, PIECE, i) == 0);
    fprintf(stderr, "%d of %d children were killed\n", killed, ROUNDS);
    puts(killed ? "all right" : "none was killed");
    return 0;
}

/* Processes of one job, which share its budget.

   share work KIND WORKERS MIB ROUNDS   workers by fork, or by fork and exec; each changes its array
                                        again and again, and what it finds at the end is printed
   share one NUMBER MIB ROUNDS          such a worker
   share hungry HOLDERS MIB SWEPT STOP  holders that fill their arrays and sleep, and one that goes
                                        about its own at random, until the file STOP is there
   share hold MIB STOP, share sweep MIB STOP, share exhaust MIB
   share family HOT COLD ROUNDS         a parent, its child, and one by exec: each goes about HOT MiB of
                                        its array all the time, and passes over COLD MiB of it
   share alone HOT COLD ROUNDS          such a process
   share signalled MIB STOP             sweeps, while a handler goes about an array of its own, and
                                        now and then a child reads both */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define INHERITED ((size_t)24 << 20)

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t *filled(size_t mib, uint64_t seed) {
    size_t words = (mib << 20) / 8;
    uint64_t *array = malloc(words * 8);
    if (!array) {
        perror("malloc");
        exit(3);
    }
    state = seed * 2 + 88172645463325252u;
    for (size_t i = 0; i < words; i++) array[i] = next();
    return array;
}

static uint64_t sum(const uint64_t *array, size_t bytes) {
    uint64_t all = 0;
    for (size_t i = 0; i < bytes / 8; i++) all = (all ^ array[i]) * 0x9e3779b97f4a7c15u + i;
    return all;
}

static uint64_t work(int number, size_t mib, int rounds) {
    uint64_t *array = filled(mib, (uint64_t)number);
    size_t words = (mib << 20) / 8;
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < words; i++) array[i] = array[i] * 6364136223846793005u + i;
        for (int i = 0; i < 500; i++) array[next() % words] += (uint64_t)number;
    }
    return sum(array, mib << 20);
}

static void run(char *self, char **arguments) {
    arguments[0] = self;
    execv(self, arguments);
    perror(self);
    _exit(127);
}

static int all_ended(int count) {
    int bad = 0, status;
    while (count-- > 0)
        if (wait(&status) < 0 || status != 0) bad = 1;
    return bad;
}

static int start_workers(char **arguments) {
    int by_exec = !strcmp(arguments[2], "exec"), workers = atoi(arguments[3]);
    size_t mib = (size_t)atoi(arguments[4]);
    uint64_t *inherited = filled(INHERITED >> 20, 99);
    int ends[workers][2];
    for (int worker = 0; worker < workers; worker++) {
        if (pipe(ends[worker])) return 1;
        fflush(stdout);
        if (fork()) {
            close(ends[worker][1]);
            continue;
        }
        if (by_exec) {
            char number[12];
            dup2(ends[worker][1], 1);
            snprintf(number, sizeof number, "%d", worker);
            run(arguments[0], (char *[]){0, "one", number, arguments[4], arguments[5], 0});
        }
        uint64_t found = work(worker, mib, atoi(arguments[5]));
        dprintf(ends[worker][1], "worker %d %016lx %016lx\n", worker, found, sum(inherited, INHERITED));
        _exit(0);
    }
    for (int worker = 0; worker < workers; worker++) {
        char line[200];
        ssize_t got;
        while ((got = read(ends[worker][0], line, sizeof line)) > 0) fwrite(line, 1, (size_t)got, stdout);
    }
    printf("inherited %016lx\n", sum(inherited, INHERITED));
    return all_ended(workers);
}

static int is_there(const char *stop) { return access(stop, F_OK) == 0; }

static int hold(size_t mib, const char *stop) {
    uint64_t *array = filled(mib, mib);
    uint64_t before = sum(array, mib << 20);
    printf("ready\n");
    fflush(stdout);
    while (!is_there(stop)) usleep(20000);
    return before != sum(array, mib << 20);
}

static int sweep(size_t mib, const char *stop) {
    uint64_t *array = filled(mib, mib), added = 0, all = 0;
    size_t words = (mib << 20) / 8;
    for (size_t i = 0; i < words; i++) all += array[i];
    for (unsigned i = 0; i % 256 || !is_there(stop); i++) {
        uint64_t value = next();
        array[value % words] += value;
        added += value;
    }
    for (size_t i = 0; i < words; i++) all -= array[i];
    printf("swept\n");
    return all + added != 0;
}

static uint64_t *handled, handled_added;
static volatile sig_atomic_t handlers;
#define HANDLED ((size_t)16 << 20)

static void handle(int signal) {
    static uint64_t own = 88172645463325252u;
    own ^= own << 13, own ^= own >> 7, own ^= own << 17;
    handled[own % (HANDLED / 8)] += own + (uint64_t)signal;
    handled_added += own + (uint64_t)signal;
    handlers++;
}

static void every(long us) {
    struct itimerval timer = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &timer, 0);
}

/* In a child: whether it finds what the parent had. */
static int reads(const uint64_t *array, size_t words, uint64_t at, uint64_t wanted) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 200; i++) handlers += array[next() % words] == handled[next() % (HANDLED / 8)];
        _exit(array[at] != wanted);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) continue;
    return status == 0;
}

static int signalled(size_t mib, const char *stop) {
    uint64_t *array = filled(mib, mib), added = 0, all = 0;
    size_t words = (mib << 20) / 8;
    handled = filled(HANDLED >> 20, 7);
    for (size_t i = 0; i < words; i++) all += array[i];
    for (size_t i = 0; i < HANDLED / 8; i++) all += handled[i];
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    every(2000);
    int bad = 0;
    for (unsigned i = 1; i % 256 || !is_there(stop); i++) {
        uint64_t value = next(), at = value % words;
        array[at] += value;
        added += value;
        if (i % 4096 == 0) bad |= !reads(array, words, at, array[at]);
    }
    every(0);
    for (size_t i = 0; i < words; i++) all -= array[i];
    for (size_t i = 0; i < HANDLED / 8; i++) all -= handled[i];
    printf("swept, %s\n", handlers > 0 ? "signalled" : "no signals");
    return bad || all + added + handled_added != 0;
}

static int hungry(char **arguments) {
    int holders = atoi(arguments[2]);
    for (int holder = 0; holder < holders; holder++)
        if (!fork()) run(arguments[0], (char *[]){0, "hold", arguments[3], arguments[5], 0});
    if (!fork()) run(arguments[0], (char *[]){0, "sweep", arguments[4], arguments[5], 0});
    return all_ended(holders + 1);
}

enum { SLICES = 16, PAGE_WORDS = 512 };

/* Changes words of the hot part, here and there, after each slice of the cold part, which it
 * reads. */
static int goes_about(uint64_t *array, char **arguments, uint64_t number) {
    size_t hot = ((size_t)atoi(arguments[2]) << 20) / 8, cold = ((size_t)atoi(arguments[3]) << 20) / 8;
    uint64_t found = number;
    state = number * 2 + 88172645463325252u;
    for (int i = 0; i < atoi(arguments[4]) * SLICES; i++) {
        size_t slice = cold / SLICES;
        found = found * 31 + sum(array + hot + i % SLICES * slice, slice * 8);
        for (size_t page = 0; page < hot / PAGE_WORDS; page++) array[next() % hot] += number;
    }
    dprintf(1, "%lu %016lx %016lx\n", number, found, sum(array, (hot + cold) * 8));
    return 0;
}

static int family(char **arguments) {
    if (!fork()) run(arguments[0], (char *[]){0, "alone", arguments[2], arguments[3], arguments[4], 0});
    uint64_t *array = filled((size_t)(atoi(arguments[2]) + atoi(arguments[3])), 1);
    pid_t child = fork();
    if (child < 0) return 1;
    int bad = goes_about(array, arguments, child == 0 ? 2 : 3);
    return child == 0 ? bad : bad | all_ended(2);
}

/* Takes arrays of 64 MiB up to `mib` MiB, or until there is no more memory. */
static int exhaust(size_t mib) {
    for (size_t got = 0; got < mib; got += 64) {
        uint64_t *array = malloc((size_t)64 << 20);
        if (!array) {
            printf("refused after %zu MiB\n", got);
            return 0;
        }
        for (size_t i = 0; i < ((size_t)64 << 20) / 8; i += 64) array[i] = i;
    }
    printf("never refused\n");
    return 1;
}

int main(int count, char **arguments) {
    if (count == 6 && !strcmp(arguments[1], "work")) return start_workers(arguments);
    if (count == 6 && !strcmp(arguments[1], "hungry")) return hungry(arguments);
    if (count == 5 && !strcmp(arguments[1], "family")) return family(arguments);
    if (count == 5 && !strcmp(arguments[1], "alone"))
        return goes_about(filled((size_t)(atoi(arguments[2]) + atoi(arguments[3])), 4), arguments, 4);
    if (count == 5 && !strcmp(arguments[1], "one")) {
        printf("worker %s %016lx\n", arguments[2],
               work(atoi(arguments[2]), (size_t)atoi(arguments[3]), atoi(arguments[4])));
        return 0;
    }
    if (count == 4 && !strcmp(arguments[1], "hold")) return hold((size_t)atoi(arguments[2]), arguments[3]);
    if (count == 4 && !strcmp(arguments[1], "sweep")) return sweep((size_t)atoi(arguments[2]), arguments[3]);
    if (count == 4 && !strcmp(arguments[1], "signalled"))
        return signalled((size_t)atoi(arguments[2]), arguments[3]);
    if (count == 3 && !strcmp(arguments[1], "exhaust")) return exhaust((size_t)atoi(arguments[2]));
    return 2;
}

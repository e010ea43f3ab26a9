/* Begins as root, maps a file, becomes another user, and maps another file. Then a child writes to
 * each of them: it waits until the library gives the file up, of which the kernel must be able to
 * notify a thread.
 *
 * usage: mapped_user FILE FILE, both of user 65534
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

enum { USER = 65534 };

static volatile unsigned char *mapped(const char *name, size_t *bytes) {
    struct stat stat;
    int file = open(name, O_RDONLY);
    CHECK(file >= 0 && fstat(file, &stat) == 0);
    unsigned char *at = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED && close(file) == 0);
    *bytes = stat.st_size;
    return at;
}

static unsigned sum(volatile unsigned char *at, size_t bytes) {
    unsigned all = 0;
    for (size_t i = 0; i < bytes; i += 4096)
        all += at[i];
    return all;
}

/* The number of threads that wait for leases, and whether a signal that the user causes reaches one
 * of them. */
static int waiting(int *reached) {
    DIR *threads = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
        char path[300], text[4096] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        char *users = strstr(text, "\nUid:");
        if (strstr(text, "Name:\tterapage-files\n") == NULL || users == NULL)
            continue;
        unsigned real, effective, saved;
        CHECK(sscanf(users, "\nUid: %u %u %u", &real, &effective, &saved) == 3);
        count++;
        *reached |= real == USER || saved == USER;
    }
    closedir(threads);
    return count;
}

/* The child adds one to the first byte of a file. */
static void writes(char **names, int asked, int done) {
    char index;
    while (read(asked, &index, 1) == 1) {
        unsigned char byte;
        int file = open(names[(int)index], O_RDWR);
        CHECK(file >= 0 && pread(file, &byte, 1, 0) == 1);
        byte++;
        CHECK(pwrite(file, &byte, 1, 0) == 1 && close(file) == 0);
        CHECK(write(done, &index, 1) == 1);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    size_t bytes[2];
    volatile unsigned char *at[2];
    int asked[2], done[2];
    CHECK(argc == 3 && pipe(asked) == 0 && pipe(done) == 0);
    /* It begins before files are mapped: a fork gives them up. */
    pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        close(asked[1]);
        writes(argv + 1, asked[0], done[1]);
    }
    at[0] = mapped(argv[1], &bytes[0]);
    unsigned before = sum(at[0], bytes[0]);
    CHECK(setuid(USER) == 0);
    at[1] = mapped(argv[2], &bytes[1]);
    unsigned other = sum(at[1], bytes[1]);
    int reached = 0;
    CHECK(waiting(&reached) > 0 && reached);
    for (int i = 0; i < 2; i++) {
        unsigned char now = at[i][0] + 1, index = i;
        CHECK(write(asked[1], &index, 1) == 1 && read(done[0], &index, 1) == 1);
        CHECK(at[i][0] == now);
    }
    unsigned more = (sum(at[0], bytes[0]) - before) + (sum(at[1], bytes[1]) - other);
    CHECK(more % 256 == 2);
    int status = -1;
    CHECK(close(asked[1]) == 0 && waitpid(writer, &status, 0) == writer && status == 0);
    puts("ok");
    return 0;
}

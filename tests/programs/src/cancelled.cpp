// Cancels threads that wait in a call whose buffer is paged: their destructors run.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <pthread.h>
#include <unistd.h>

static std::atomic<int> destroyed, begun;
static int pipes[2];
static char *data;

struct Resource {
    ~Resource() { destroyed++; }
};

static void *reads(void *) {
    Resource resource;
    begun++;
    return read(pipes[0], data, 100) < 0 ? data : nullptr;
}

static void *gets(void *) {
    Resource resource;
    FILE *file = fdopen(dup(pipes[0]), "r");
    setvbuf(file, data + 8192, _IOFBF, 4096);
    begun++;
    return fgetc(file) < 0 ? data : nullptr;
}

int main() {
    const size_t bytes = 64 << 20;
    data = static_cast<char *>(malloc(bytes));
    memset(data, 1, bytes);
    if (pipe(pipes) != 0)
        return 1;
    for (auto begin : {reads, gets}) {
        pthread_t thread;
        int before = begun;
        pthread_create(&thread, nullptr, begin, nullptr);
        while (begun == before)
            usleep(1000);
        usleep(100000);
        pthread_cancel(thread);
        void *answer;
        pthread_join(thread, &answer);
        if (answer != PTHREAD_CANCELED)
            return 2;
    }
    printf("%d destructors\n", destroyed.load());
    return 0;
}

/* Random calls of the mmap family on one range, against a model: what each page may do, and what it
 * holds.
 *
 * With a size, the range is a part of so much that is reserved: some of it near either end, some in
 * the middle. Then there are calls for all of the reservation, too, and for what lies between.
 *
 * usage: mapping_walk CALLS [GIB [SEED]]     the seed is printed
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "page.h"
#include "rights.h"

#define PAGES 8192
/* Parts of the range that lie apart, where it is one of a reservation. */
#define PARTS 4
#define PART (PAGES / PARTS)
#define WORDS (PAGE / 8)
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

struct page {
    int rights;
    /* Of its words; 0: they are zeros. */
    uint64_t series;
};

static struct page *pages;
static char *range;
/* Of the whole reservation; 0: there is none but the range. */
static size_t reserved;
static uint64_t state;

static char *place(size_t index)
{
    if (!reserved)
        return range + index * PAGE;
    /* The second and third part begin and end within blocks, almost side by side. */
    size_t middle = reserved / 2 / PAGE * PAGE;
    size_t starts[PARTS] = {0, middle + 3 * PAGE, middle + (PART + 50) * PAGE, reserved - PART * PAGE};
    return range + starts[index / PART] + index % PART * PAGE;
}

static uint64_t chance(uint64_t of)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % of;
}

static void check_page(size_t index)
{
    struct page page = pages[index];
    uint64_t *words = (uint64_t *)place(index);
    if (page.rights != PROT_NONE) {
        size_t wrong = page.series ? differing(words, PAGE, page.series) : not_zero(words, PAGE);
        CHECK(wrong == 0);
    }
    if (page.rights != READ_WRITE && chance(16) == 0)
        CHECK(!allows(words + chance(WORDS), page.rights == PROT_READ));
}

static void check_all(void)
{
    for (size_t index = 0; index < PAGES; index++)
        check_page(index);
}

static void set(size_t from, size_t count, int rights, int drops)
{
    for (size_t index = from; index < from + count; index++) {
        pages[index].rights = rights;
        if (drops)
            pages[index].series = 0;
    }
}

static int all_writable(size_t from, size_t count)
{
    for (size_t index = from; index < from + count; index++)
        if (pages[index].rights != READ_WRITE)
            return 0;
    return 1;
}

static void forks(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_all();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void map_at(size_t from, size_t count, int rights)
{
    if (count > 0)
        CHECK(mmap(place(from), count * PAGE, rights, PRIVATE | MAP_FIXED | MAP_NORESERVE, -1, 0) == place(from));
    set(from, count, rights, 1);
}

static void unmap_and_map(size_t from, size_t count)
{
    CHECK(munmap(place(from), count * PAGE) == 0);
    size_t first = chance(count + 1);
    map_at(from, first, chance(2) ? READ_WRITE : PROT_NONE);
    map_at(from + first, count - first, chance(2) ? READ_WRITE : PROT_NONE);
}

/* A call for the reservation as a whole, or for all between two parts. */
static void all_of_it(void)
{
    char *at = range, *between = place(PART - 1) + PAGE;
    size_t bytes = place(PART) - between;
    switch (chance(9)) {
    case 0:
        CHECK(madvise(at, reserved, MADV_DONTNEED) == 0);
        for (size_t index = 0; index < PAGES; index++)
            pages[index].series = 0;
        break;
    case 1:
        CHECK(mprotect(at, reserved, PROT_NONE) == 0);
        set(0, PAGES, PROT_NONE, 0);
        break;
    case 2:
        CHECK(mprotect(at, reserved, READ_WRITE) == 0);
        set(0, PAGES, READ_WRITE, 0);
        break;
    case 3:
        CHECK(mmap(at, reserved, PROT_NONE, PRIVATE | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
        set(0, PAGES, PROT_NONE, 1);
        break;
    case 4:
        CHECK(munmap(at, reserved) == 0);
        range = mmap(chance(2) ? at : NULL, reserved, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
        CHECK(range != MAP_FAILED);
        set(0, PAGES, PROT_NONE, 1);
        break;
    case 5:
        CHECK(mprotect(between, bytes, chance(2) ? PROT_READ : READ_WRITE) == 0);
        CHECK(not_zero(between + bytes - PAGE, PAGE) == 0 && not_zero(between, PAGE) == 0);
        break;
    case 6:
        CHECK(mprotect(between, bytes, PROT_NONE) == 0 && !allows((uint64_t *)between, 0));
        break;
    case 7:
        CHECK(munmap(between, bytes) == 0);
        CHECK(mmap(between, bytes, PROT_NONE, PRIVATE | MAP_FIXED | MAP_NORESERVE, -1, 0) == between);
        break;
    default:
        forks();
    }
}

static void step(void)
{
    static const int RIGHTS[] = {PROT_NONE, PROT_READ, READ_WRITE, READ_WRITE, READ_WRITE};
    size_t from = chance(PAGES), count = 1 + chance(chance(4) ? 40 : 600);
    size_t end = reserved ? (from / PART + 1) * PART : PAGES;
    if (from + count > end)
        count = end - from;
    char *at = place(from);
    size_t bytes = count * PAGE, to = chance(PAGES);
    int rights = RIGHTS[chance(5)];
    if (reserved && chance(150) == 0) {
        all_of_it();
        return;
    }
    switch (chance(17)) {
    case 0:
    case 1:
        CHECK(mmap(at, bytes, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0) == at);
        set(from, count, READ_WRITE, 1);
        break;
    case 2:
        CHECK(mmap(at, bytes, PROT_NONE, PRIVATE | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
        set(from, count, PROT_NONE, 1);
        break;
    case 3:
    case 4:
    case 5:
        CHECK(mprotect(at, bytes, rights) == 0);
        set(from, count, rights, 0);
        break;
    case 6:
        CHECK(madvise(at, bytes, MADV_DONTNEED) == 0);
        for (size_t index = from; index < from + count; index++)
            pages[index].series = 0;
        break;
    case 7:
        if (chance(4) || to + count > (reserved ? (to / PART + 1) * PART : PAGES) || (to < from + count && from < to + count) || !all_writable(from, count))
            break;
        CHECK(mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, place(to)) == place(to));
        for (size_t index = 0; index < count; index++) {
            pages[to + index] = pages[from + index];
            pages[from + index].series = 0;
        }
        break;
    case 8:
        if (chance(60) == 0)
            forks();
        break;
    case 9:
        if (chance(20) == 0)
            check_all();
        break;
    case 10:
        if (chance(8) == 0 && count < 60 && all_writable(from, count))
            CHECK(mlock(at, bytes) == 0 && munlock(at, bytes) == 0);
        break;
    case 11:
        unmap_and_map(from, count);
        break;
    default:
        for (size_t index = from; index < from + count; index++) {
            check_page(index);
            if (pages[index].rights == READ_WRITE && chance(2)) {
                pages[index].series = 1 + chance(1 << 30);
                fill(place(index), PAGE, pages[index].series);
            }
        }
    }
}

int main(int argc, char **argv)
{
    size_t calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000;
    reserved = argc > 2 ? strtoull(argv[2], NULL, 10) << 30 : 0;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)getpid();
    fprintf(stderr, "seed %llu\n", (unsigned long long)state);
    catch_faults();
    pages = mmap(NULL, PAGES * sizeof *pages, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    range = mmap(NULL, reserved ? reserved : PAGES * PAGE, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED && range != MAP_FAILED);
    set(0, PAGES, PROT_NONE, 1);
    for (size_t call = 0; call < calls; call++)
        step();
    check_all();
    printf("%zu calls\n", calls);
    return 0;
}

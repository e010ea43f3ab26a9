/* Random calls on many objects by several threads, against a model: what each page may do, what it
 * holds, and what a child is to find there. Objects are grown, split, moved, mapped over in part,
 * locked and handed from thread to thread; children check theirs and go on for a while.
 *
 * usage: object_walk STEPS [THREADS [SEED]]     the seed is printed
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "page.h"
#include "rights.h"

#define WORDS (PAGE / 8)
#define MOST 600
#define SLOTS 16
#define DEPTH 2
#define THREADS 16
/* Pages of a thread's static array. */
#define STATIC 500
#define FILE_PAGES 64
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

struct page {
    uint8_t rights;
    uint8_t is_shared;
    /* A file's, so that nothing but its bytes comes with it to a child. */
    uint8_t is_file;
    /* Empty in a child. */
    uint8_t wiped;
    /* Not there in a child. */
    uint8_t kept;
    uint8_t locked;
    /* It may have been taken away at any time since it was written. */
    uint8_t lazy;
    /* Of its words, and of those that it has when it is dropped; 0: they are zeros. */
    uint64_t series, base;
};

struct object {
    char *at;
    size_t pages;
    /* From malloc: whole pages by size, not by place. */
    int is_heap;
    /* Of the static array: never unmapped. */
    int is_static;
    struct page page[MOST];
};

struct walker {
    uint64_t state;
    int depth;
    struct object object[SLOTS];
};

static char statics[THREADS][STATIC * PAGE] __attribute__((aligned(PAGE_BYTES)));
static struct walker *walkers;
/* An object on its way to another thread. */
static struct object *passed;
static pthread_mutex_t passing = PTHREAD_MUTEX_INITIALIZER;
static size_t steps;
static int file;

static uint64_t chance(struct walker *walker, uint64_t of)
{
    walker->state = walker->state * 6364136223846793005u + 1442695040888963407u;
    return (walker->state >> 33) % of;
}

static size_t wrong_words(const void *at, uint64_t series)
{
    return series ? differing(at, PAGE, series) : not_zero(at, PAGE);
}

static void check_page(struct walker *walker, struct object *object, size_t index)
{
    struct page page = object->page[index];
    uint64_t *words = (uint64_t *)(object->at + index * PAGE);
    if (page.rights & PROT_READ) {
        size_t wrong = wrong_words(words, page.series);
        if (wrong > 0 && page.lazy)
            wrong = wrong_words(words, 0);
        if (wrong > 0)
            fprintf(stderr, "page %zu of %zu at %p: %zu words wrong, first %llx; rights %d, shared %d, file %d, depth %d, series %llx\n",
                    index, object->pages, (void *)words, wrong, (unsigned long long)words[0], page.rights, page.is_shared, page.is_file, walker->depth, (unsigned long long)page.series);
        CHECK(wrong == 0);
    }
    if (page.rights != READ_WRITE && chance(walker, 16) == 0)
        CHECK(!allows(words + chance(walker, WORDS), page.rights == PROT_READ));
}

static void check_object(struct walker *walker, struct object *object)
{
    for (size_t index = 0; index < object->pages; index++)
        check_page(walker, object, index);
}

static void write_page(struct walker *walker, struct object *object, size_t index)
{
    struct page *page = &object->page[index];
    /* What is shared is the parent's as well. */
    if (page->rights != READ_WRITE || (page->is_shared && walker->depth > 0))
        return;
    page->series = 1 + chance(walker, 1 << 30);
    page->lazy = 0;
    fill(object->at + index * PAGE, PAGE, page->series);
    if (page->is_shared)
        page->base = page->series;
}

static void set(struct object *object, size_t from, size_t count, struct page page)
{
    for (size_t index = from; index < from + count; index++)
        object->page[index] = page;
}

/* Whether all pages of a part are alike, except for their contents. */
static int is_even(struct object *object, size_t from, size_t count, int rights)
{
    struct page first = object->page[from];
    for (size_t index = from; index < from + count; index++) {
        struct page page = object->page[index];
        if (page.rights != rights || page.is_shared || page.is_file || page.wiped != first.wiped || page.kept != first.kept || page.locked != first.locked)
            return 0;
    }
    return 1;
}

static struct object *find_free(struct walker *walker)
{
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (!walker->object[slot].pages)
            return &walker->object[slot];
    return NULL;
}

static void make(struct walker *walker, struct object *object)
{
    static const int RIGHTS[] = {PROT_NONE, PROT_READ, READ_WRITE, READ_WRITE, READ_WRITE, READ_WRITE};
    object->pages = 1 + chance(walker, chance(walker, 3) ? 40 : 400);
    object->is_static = 0;
    size_t bytes = object->pages * PAGE;
    struct page page = {.rights = RIGHTS[chance(walker, 6)]};
    object->is_heap = chance(walker, 4) == 0;
    if (object->is_heap) {
        page.rights = READ_WRITE;
        object->at = chance(walker, 2) ? calloc(object->pages, PAGE) : aligned_alloc(64, bytes);
        CHECK(object->at);
        set(object, 0, object->pages, page);
        for (size_t index = 0; index < object->pages; index++)
            write_page(walker, object, index);
        return;
    }
    object->at = mmap(NULL, bytes, page.rights, PRIVATE, -1, 0);
    CHECK(object->at != MAP_FAILED);
    set(object, 0, object->pages, page);
}

static void end(struct object *object)
{
    if (object->is_heap)
        free(object->at);
    else
        CHECK(munmap(object->at, object->pages * PAGE) == 0);
    object->pages = 0;
}

/* Unmaps a part. What was behind it becomes an object of its own. */
static void unmap(struct walker *walker, struct object *object, size_t from, size_t count)
{
    CHECK(munmap(object->at + from * PAGE, count * PAGE) == 0);
    size_t behind = object->pages - from - count;
    if (from == 0) {
        memmove(object->page, object->page + count, behind * sizeof(struct page));
        object->at += count * PAGE;
        object->pages = behind;
        return;
    }
    object->pages = from;
    if (behind == 0)
        return;
    struct object *rest = find_free(walker);
    char *at = object->at + (from + count) * PAGE;
    if (!rest) {
        CHECK(munmap(at, behind * PAGE) == 0);
        return;
    }
    rest->at = at;
    rest->pages = behind;
    rest->is_heap = rest->is_static = 0;
    memcpy(rest->page, object->page + from + count, behind * sizeof(struct page));
}

static void resize_heap(struct walker *walker, struct object *object)
{
    size_t pages = 1 + chance(walker, MOST);
    char *at = realloc(object->at, pages * PAGE);
    CHECK(at);
    object->at = at;
    size_t before = object->pages;
    object->pages = pages;
    for (size_t index = before; index < pages; index++) {
        object->page[index] = (struct page){.rights = READ_WRITE};
        write_page(walker, object, index);
    }
}

/* Grows, shrinks or moves an object; where the kernel may refuse it, a refusal changes nothing. */
static void remap(struct walker *walker, struct object *object)
{
    size_t pages = 1 + chance(walker, chance(walker, 2) ? object->pages + 20 : MOST);
    pages = pages > MOST ? MOST : pages;
    if (pages > object->pages && !is_even(object, 0, object->pages, object->page[0].rights))
        return;
    char *at = mremap(object->at, object->pages * PAGE, pages * PAGE, chance(walker, 4) ? MREMAP_MAYMOVE : 0);
    if (at == MAP_FAILED) {
        CHECK(errno == ENOMEM || errno == EFAULT);
        return;
    }
    struct page grown = object->page[0];
    grown.series = grown.base = grown.lazy = 0;
    if (pages > object->pages)
        set(object, object->pages, pages - object->pages, grown);
    object->at = at;
    object->pages = pages;
}

/* Makes part of an object one of its own, of another size. */
static void take_out(struct walker *walker, struct object *object, size_t from, size_t count)
{
    struct object *made = find_free(walker);
    if (!made || !is_even(object, from, count, object->page[from].rights))
        return;
    size_t pages = count + 1 + chance(walker, MOST - count);
    char *old = object->at + from * PAGE, *at = mremap(old, count * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) {
        CHECK(errno == ENOMEM || errno == EFAULT);
        return;
    }
    struct page grown = object->page[from];
    grown.series = grown.base = grown.lazy = 0;
    *made = (struct object){.at = at, .pages = pages};
    memcpy(made->page, object->page + from, count * sizeof(struct page));
    set(made, count, pages - count, grown);
    if (at == old) {
        /* It has grown where it was, being the last. */
        CHECK(from + count == object->pages);
        object->pages = from;
    } else if (from + count < object->pages) {
        CHECK(munmap(old + count * PAGE, (object->pages - from - count) * PAGE) == 0);
    }
    object->pages = from;
}

/* Moves part of one object over part of another. */
static void move_over(struct walker *walker, struct object *object, size_t from, size_t count)
{
    struct object *other = &walker->object[chance(walker, SLOTS)];
    if (other == object || other->is_heap || other->pages < count || !is_even(object, from, count, object->page[from].rights))
        return;
    size_t to = chance(walker, other->pages - count + 1);
    char *at = object->at + from * PAGE, *new = other->at + to * PAGE;
    int keeps = chance(walker, 2);
    if (mremap(at, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | (keeps ? MREMAP_DONTUNMAP : 0), new) != new) {
        /* Pages in several mappings: the place may be empty now, so it is mapped anew. */
        CHECK(errno == EFAULT || errno == EINVAL);
        CHECK(mmap(new, count * PAGE, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0) == new);
        set(other, to, count, (struct page){.rights = READ_WRITE});
        return;
    }
    memcpy(other->page + to, object->page + from, count * sizeof(struct page));
    if (!keeps) {
        /* The hole is anybody's: it is filled at the end of what stays. */
        size_t behind = object->pages - from - count;
        if (behind > 0)
            CHECK(munmap(at + count * PAGE, behind * PAGE) == 0);
        object->pages = from;
        return;
    }
    for (size_t index = from; index < from + count; index++)
        object->page[index].series = object->page[index].lazy = object->page[index].locked = 0;
}

static void map_over(struct walker *walker, struct object *object, size_t from, size_t count)
{
    char *at = object->at + from * PAGE;
    size_t bytes = count * PAGE;
    struct page page = {.rights = READ_WRITE};
    switch (chance(walker, 7)) {
    case 0:
        page.rights = PROT_NONE;
        CHECK(mmap(at, bytes, PROT_NONE, PRIVATE | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
        break;
    case 1:
        page.is_shared = 1;
        CHECK(mmap(at, bytes, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        break;
    case 2:
        page.is_file = 1;
        count = count < FILE_PAGES ? count : FILE_PAGES;
        bytes = count * PAGE;
        CHECK(mmap(at, bytes, READ_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == at);
        break;
    default:
        CHECK(mmap(at, bytes, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0) == at);
    }
    set(object, from, count, page);
    for (size_t index = from; page.is_file && index < from + count; index++)
        object->page[index].series = object->page[index].base = 1 + index - from;
}

static void protect(struct walker *walker, struct object *object, size_t from, size_t count)
{
    static const int RIGHTS[] = {PROT_NONE, PROT_READ, READ_WRITE, READ_WRITE};
    int rights = RIGHTS[chance(walker, 4)];
    CHECK(mprotect(object->at + from * PAGE, count * PAGE, rights) == 0);
    for (size_t index = from; index < from + count; index++)
        object->page[index].rights = rights;
}

static void advise(struct walker *walker, struct object *object, size_t from, size_t count)
{
    static const int ADVICE[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTFORK, MADV_DOFORK, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_WRITE, MADV_HUGEPAGE, MADV_NOHUGEPAGE};
    int advice = ADVICE[chance(walker, sizeof ADVICE / sizeof *ADVICE)];
    int is_plain = 1, is_writable = 1, is_locked = 0;
    for (size_t index = from; index < from + count; index++) {
        is_plain &= !object->page[index].is_shared && !object->page[index].is_file;
        is_writable &= object->page[index].rights == READ_WRITE;
        is_locked |= object->page[index].locked;
    }
    if (is_locked)
        return;
    if (!is_plain && advice != MADV_DONTNEED)
        return;
    if (advice == MADV_POPULATE_WRITE && !is_writable)
        return;
    CHECK(madvise(object->at + from * PAGE, count * PAGE, advice) == 0);
    for (size_t index = from; index < from + count; index++) {
        struct page *page = &object->page[index];
        if (advice == MADV_DONTNEED)
            page->series = page->base, page->lazy = 0;
        else if (advice == MADV_FREE)
            page->lazy = 1;
        else if (advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK)
            page->wiped = advice == MADV_WIPEONFORK;
        else if (advice == MADV_DONTFORK || advice == MADV_DOFORK)
            page->kept = advice == MADV_DONTFORK;
    }
}

static void lock(struct object *object, size_t from, size_t count, int stays)
{
    char *at = object->at + from * PAGE;
    CHECK(mlock(at, count * PAGE) == 0 && (stays || munlock(at, count * PAGE) == 0));
    for (size_t index = from; index < from + count; index++)
        object->page[index].locked = stays;
}

/* Bytes of pages go through a pipe's end and a file. */
static void copy(struct walker *walker, struct object *object, size_t from, size_t count)
{
    if (!is_even(object, from, count, READ_WRITE))
        return;
    int copy = memfd_create("copy", 0);
    CHECK(copy >= 0);
    char *at = object->at + from * PAGE;
    CHECK(pwrite(copy, at, count * PAGE, 0) == (ssize_t)(count * PAGE));
    for (size_t index = from; index < from + count; index++)
        write_page(walker, object, index);
    /* As it was written, the page is what it was, or was empty. */
    CHECK(pread(copy, at, PAGE, 0) == (ssize_t)PAGE && close(copy) == 0);
    object->page[from].series = 0;
    fill(at, PAGE, object->page[from].series = 1 + chance(walker, 1 << 30));
}

static void pass(struct walker *walker, struct object *object)
{
    for (size_t index = 0; index < object->pages; index++)
        if (object->page[index].is_shared || object->is_static)
            return;
    CHECK(pthread_mutex_lock(&passing) == 0);
    struct object *mine = &walker->object[chance(walker, SLOTS)];
    if (passed->pages && !mine->pages) {
        *mine = *passed;
        *passed = *object;
        object->pages = 0;
    } else if (!passed->pages) {
        *passed = *object;
        object->pages = 0;
    }
    CHECK(pthread_mutex_unlock(&passing) == 0);
}

static void walk(struct walker *walker, size_t steps);

static void forks(struct walker *walker)
{
    if (walker->depth == DEPTH)
        return;
    size_t more = chance(walker, 2) ? chance(walker, 30) : 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        walker->depth++;
        /* Nobody else is there to give it back. */
        pthread_mutex_init(&passing, NULL);
        passed->pages = 0;
        for (size_t slot = 0; slot < SLOTS; slot++) {
            struct object *object = &walker->object[slot];
            int is_whole = 1;
            for (size_t index = 0; index < object->pages; index++) {
                struct page *page = &object->page[index];
                is_whole &= !page->kept;
                page->locked = 0;
                if (page->wiped)
                    page->series = page->base, page->lazy = 0;
            }
            if (is_whole)
                check_object(walker, object);
            else
                object->pages = 0;
        }
        walk(walker, more);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status)
        fprintf(stderr, "a child at depth %d ended with %x\n", walker->depth + 1, status);
    CHECK(status == 0);
}

static void step(struct walker *walker)
{
    struct object *object = &walker->object[chance(walker, SLOTS)];
    if (!object->pages) {
        make(walker, object);
        return;
    }
    size_t from = chance(walker, object->pages), count = 1 + chance(walker, chance(walker, 3) ? 20 : MOST);
    count = from + count > object->pages ? object->pages - from : count;
    uint64_t call = chance(walker, 26);
    if (object->is_heap && call > 0 && call < 14) {
        resize_heap(walker, object);
        return;
    }
    if (object->is_static && call < 6)
        call = 10;
    switch (call) {
    case 0:
        end(object);
        break;
    case 1:
    case 2:
        unmap(walker, object, from, count);
        break;
    case 3:
        take_out(walker, object, from, count);
        break;
    case 4:
        remap(walker, object);
        break;
    case 5:
        move_over(walker, object, from, count);
        break;
    case 6:
    case 7:
        map_over(walker, object, from, count);
        break;
    case 8:
    case 9:
        protect(walker, object, from, count);
        break;
    case 10:
    case 11:
    case 12:
        advise(walker, object, from, count);
        break;
    case 13:
        if (count < 60 && is_even(object, from, count, READ_WRITE))
            lock(object, from, count, chance(walker, 3) == 0);
        break;
    case 14:
        copy(walker, object, from, count);
        break;
    case 15:
        pass(walker, object);
        break;
    case 16:
        if (chance(walker, 6) == 0)
            forks(walker);
        break;
    default:
        for (size_t index = from; index < from + count; index++) {
            check_page(walker, object, index);
            if (chance(walker, 2))
                write_page(walker, object, index);
        }
    }
}

static void walk(struct walker *walker, size_t steps)
{
    for (size_t done = 0; done < steps; done++)
        step(walker);
    for (size_t slot = 0; slot < SLOTS; slot++)
        check_object(walker, &walker->object[slot]);
}

static void *run(void *walker)
{
    walk(walker, steps);
    return NULL;
}

/* Memory of the walk's own, of which nothing is paged. */
static void *model(size_t bytes)
{
    int zeros = open("/dev/zero", O_RDWR);
    void *at = mmap(NULL, bytes, READ_WRITE, MAP_PRIVATE, zeros, 0);
    CHECK(zeros >= 0 && at != MAP_FAILED && close(zeros) == 0);
    return at;
}

int main(int argc, char **argv)
{
    steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 1500;
    size_t threads = argc > 2 ? strtoull(argv[2], NULL, 10) : 3;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)getpid();
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    CHECK(threads > 0 && threads <= THREADS);
    catch_faults();
    walkers = model(threads * sizeof *walkers);
    passed = model(sizeof *passed);
    file = memfd_create("file", 0);
    uint64_t page[WORDS];
    for (uint64_t index = 0; index < FILE_PAGES; index++) {
        fill(page, PAGE, 1 + index);
        CHECK(pwrite(file, page, PAGE, index * PAGE) == (ssize_t)PAGE);
    }
    pthread_t ids[THREADS];
    for (size_t index = 0; index < threads; index++) {
        walkers[index].state = seed * 1000003 + index;
        struct object *object = &walkers[index].object[0];
        *object = (struct object){.at = statics[index], .pages = STATIC, .is_static = 1};
        set(object, 0, STATIC, (struct page){.rights = READ_WRITE});
        CHECK(pthread_create(&ids[index], NULL, run, &walkers[index]) == 0);
    }
    for (size_t index = 0; index < threads; index++)
        CHECK(pthread_join(ids[index], NULL) == 0);
    printf("%zu steps\n", steps * threads);
    return 0;
}

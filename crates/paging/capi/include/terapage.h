/*
 * terapage.h - memory far larger than the machine's, for C and C++.
 *
 * Data that does not fit the budget lies in a store on a local disk and comes
 * back when it is touched. Link with -lterapage (pkg-config: terapage). The
 * process has one pager. tera_init starts it; otherwise the first call that
 * needs it does, with the options of the environment (TERAPAGE_MEMORY,
 * TERAPAGE_STORE, ...). Under `terapage run` it is the pager that is there:
 * options are checked, and have no effect.
 *
 *     double *table = tera_malloc(100UL << 30);
 *     if (!table)
 *         fprintf(stderr, "%s\n", tera_error());
 *
 * Errors: functions return NULL or -1 and set errno; tera_error() has the
 * message. Any thread may call all functions, a signal handler none. None is a
 * cancellation point.
 *
 * Call closefrom() and the like, which close descriptors that the program did
 * not open, before the first use: see docs/c-api.md.
 *
 * If the program cannot have its bytes, it is stopped with a message (SIGABRT):
 * a store or a mapped file cannot be read, or bytes have changed there. If the
 * store is full, it ends with a message and status 125.
 */
#ifndef TERAPAGE_H
#define TERAPAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Start ------------------------------------------------------------- */

/*
 * A field that is 0 or NULL is taken from the environment, and if that has no
 * value, from the defaults. Set `size`, or begin with TERA_OPTIONS_INIT:
 *
 *     struct tera_options options = TERA_OPTIONS_INIT;
 *     options.memory = 4UL << 30;
 */
struct tera_options {
    size_t size;          /* sizeof(struct tera_options) */
    uint64_t memory;      /* the budget, bytes; default: half of the machine's memory */
    const char *store;    /* a directory on a disk, an empty file there, or a block device, whose
                              content is lost; default: the first of $TMPDIR, /var/tmp, /tmp and
                              the current directory that is on a disk and can be written */
    size_t block;         /* bytes of a block: 4096 to 2097152, a power of two; default 16384 */
    const char *policy;   /* replacement: as terapage run --policy takes */
    const char *prefetch; /* auto, sequential, stride, trend, off */
    size_t address_space; /* the most bytes that can be allocated and mapped at once; at least
                              67108864 (64 MiB), default 1 TiB */
};

#define TERA_OPTIONS_INIT { sizeof(struct tera_options), 0, NULL, 0, NULL, NULL, 0 }

/*
 * Starts the pager; `options` may be NULL. Returns 0, or -1:
 *   EALREADY       the pager has been started, perhaps by the first use
 *   EINVAL         an option is wrong, for example a store that cannot be used (tera_error says
 *                  why); or the process locks all that it maps (mlockall)
 *   EPERM, ENOSYS  the kernel gives this process no userfaultfd or no io_uring
 *   others         the system's error when the store was opened, though it was usable just before
 */
int tera_init(const struct tera_options *options);

/*
 * Sets the budget, in bytes, from now on: at most those with which the pager began (tera_init, or
 * TERAPAGE_MEMORY). What is too much leaves memory within the next moments, more can be used at
 * once. Starts the pager if nothing has. A forked child has the budget that its parent had.
 *
 * Returns 0, or -1:
 *   EINVAL         more than that, or fewer than 8 blocks
 *   EALREADY       the pager is that of `terapage run`, whose budget all its processes share
 *   others         as tera_init
 */
int tera_set_budget(uint64_t bytes);

/* ---- Memory ------------------------------------------------------------ */

/*
 * These work as malloc, calloc, realloc and free, in paged memory, aligned to 16
 * bytes. Allocations of 128 KiB and more begin at a block, and give back their
 * frames and their part of the store as soon as they are freed. tera_realloc
 * grows such an allocation in place if it can.
 *
 * NULL: ENOMEM if no address space is left, or the reason why the pager could not
 * be started. An allocation of 0 bytes has an address of its own.
 * tera_realloc(NULL, n) is tera_malloc(n); tera_realloc(p, 0) makes p 0 bytes long.
 *
 * Do not use this memory for vmsplice, MSG_ZEROCOPY, or direct I/O that does not
 * pin its pages (NFS; any before Linux 6.8): see docs/c-api.md.
 */
void *tera_malloc(size_t len);
void *tera_calloc(size_t count, size_t len);
void *tera_realloc(void *at, size_t len);

/*
 * Returns 0; NULL does nothing. Returns -1 with EINVAL, and does nothing, if the
 * address was not allocated or is free already.
 */
int tera_free(void *at);

/* The names of tera_malloc and tera_free in Teramem. */
void *teramalloc(size_t len);
void terafree(void *at);

/* ---- Advice ------------------------------------------------------------ */

/*
 * Advice about part of an allocation or mapping. No advice changes a byte.
 */
enum tera_advice {
    TERA_WILL_NEED = 1,  /* touched soon: read now, up to a quarter of the budget */
    TERA_DONE_WITH = 2,  /* not touched soon: blocks wholly inside leave memory first */
    TERA_SEQUENTIAL = 3, /* touched in order, which is the default: undoes TERA_RANDOM */
    TERA_RANDOM = 4      /* touched in no order: nothing is read ahead */
};

/* Returns 0, or -1 with EINVAL: not all of the range is tera_* memory, or no such advice. */
int tera_advise(const void *at, size_t len, int advice);

/* ---- Files ------------------------------------------------------------- */

enum {
    TERA_RDONLY = 1, /* changes stay in memory and are lost with the mapping */
    TERA_RDWR = 2    /* tera_sync and tera_unmap write changes to the file */
};

/*
 * Maps `len` bytes of a file (or block device) from `offset` on; len 0 means the rest of the file.
 * Memory beyond the file's end reads as zeros and is never written to it. The file is read block by
 * block as it is touched. `len_out`, unless it is NULL, gets the length in bytes. Each block costs
 * 32 bytes of memory at once, touched or not: 2 GiB for 1 TiB in blocks of 16 KiB, holes too.
 *
 * Nobody else may change the file meanwhile, and no part of it may be mapped twice. If a block that
 * was read has changed in the file when it is read again, the program is stopped. The file never
 * changes before tera_sync or tera_unmap; changes not synced when the process ends are lost.
 *
 * NULL:
 *   ENOENT, EACCES, ETXTBSY ...  the errors of open(2) for the path and flags
 *   EISDIR, ENODEV  a directory; something else that is not a file, or a file with fewer bytes than
 *                   it says (/sys)
 *   EINVAL          offset is no multiple of 4096; there is nothing to map (an empty file, or
 *                   offset beyond its end); unknown flags
 *   ENFILE          about 250 files are mapped already
 *   ENOMEM          no address space is left
 */
void *tera_map_file(const char *path, uint64_t offset, size_t len, int flags, size_t *len_out);

/*
 * Writes the changes in the mapping that begins at `at` to its file, and waits
 * until they are durable (fdatasync). Changes by other threads at the same time
 * reach the file now or with the next call. Returns 0; or -1 and the errno of the
 * write (ENOSPC, EFBIG, EIO, ...): the next call tries again. EINVAL: no mapping
 * begins there.
 */
int tera_sync(const void *at);

/*
 * Does tera_sync, then ends the mapping. If tera_sync fails, returns -1 with its
 * errno, and the mapping stays.
 */
int tera_unmap(void *at);

/* ---- Counters ---------------------------------------------------------- */

struct tera_stats {
    uint64_t budget_bytes;        /* the budget */
    uint64_t block_bytes;         /* the size of a block */
    uint64_t resident_bytes;      /* frames in use, and bounce buffers */
    uint64_t resident_peak_bytes; /* the maximum of resident_bytes */
    uint64_t store_bytes;         /* in use in the store */
    uint64_t first_touches;       /* touches of blocks never touched before */
    uint64_t major_faults;         /* touches of blocks that had to be read */
    uint64_t minor_faults;         /* touches of blocks that still had their frame */
    uint64_t page_in_bytes;       /* read from the store and from mapped files */
    uint64_t page_out_bytes;      /* written to the store */
};

/* Returns 0, or -1 with EINVAL before the pager was started. */
int tera_stats(struct tera_stats *stats);

/* The message of the last failure in this thread, "" if there was none. Valid
 * until the next failure in this thread. */
const char *tera_error(void);

/* ---- numpy ------------------------------------------------------------- */

/*
 * The address of a PyDataMem_Handler (NEP 49, version 1, static) whose functions are the ones
 * above: the arrays that numpy makes while it is set with PyDataMem_SetHandler are paged. None of
 * its functions needs the interpreter.
 */
const void *tera_numpy_handler(void);

/* ---- Fork -------------------------------------------------------------- */

/*
 * A child made by fork() sees memory as it was at the fork, through a pager of
 * its own with the same budget. Its changes are its own. A mapped file is shared
 * with the parent: if a child reads it, no other process should, or nobody should
 * sync. Children made by vfork() or posix_spawn() must not touch tera_* memory. A
 * fork waits for a tera_sync that is under way.
 */

#ifdef __cplusplus
}
#endif
#endif

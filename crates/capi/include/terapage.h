/*
 * terapage.h - memory far larger than the machine's, for C and C++.
 *
 * What does not fit the budget lies in a store on a local disk and comes back
 * when it is touched. Link with -lterapage (pkg-config: terapage). The process
 * has one pager, which the first call that needs it starts with the options of
 * the environment (TERAPAGE_MEMORY, TERAPAGE_STORE, ...) unless tera_init has.
 *
 *     double *table = tera_malloc(100UL << 30);
 *     if (!table)
 *         fprintf(stderr, "%s\n", tera_error());
 *
 * Errors: functions answer NULL or -1 and set errno; tera_error() has the
 * message. All functions may be called by any thread, none by a signal handler;
 * none is a cancellation point.
 *
 * closefrom() and the like, which close what a program did not open, go before
 * the first use: see docs/c-api.md.
 *
 * What cannot be given right stops the program with a message (SIGABRT): a
 * store or a mapped file that cannot be read, bytes that come back different.
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
 * What is 0 or NULL is taken from the environment, and where that is silent,
 * from the defaults. Set `size`, or begin with TERA_OPTIONS_INIT:
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
    size_t block;         /* bytes that move together: 4096 to 2097152, a power of two; default 16384 */
    const char *policy;   /* replacement: auto, lru, fifo, clock, s3fifo, 2q, arc */
    const char *prefetch; /* auto, sequential, stride, trend, off */
    size_t address_space; /* bytes that can be allocated and mapped at once, at most: 67108864 (64 MiB)
                              at least; default 1 TiB */
};

#define TERA_OPTIONS_INIT { sizeof(struct tera_options), 0, NULL, 0, NULL, NULL, 0 }

/*
 * Starts the pager; `options` may be NULL. 0, or -1:
 *   EALREADY       it has been started, perhaps by the first use
 *   EINVAL         an option cannot be what it is, a store that cannot be had among them
 *                  (tera_error says why); the process locks all that it maps (mlockall)
 *   EPERM, ENOSYS  the kernel gives this process no userfaultfd or no io_uring
 *   others         what the system gave when the store was opened, though it could be had just
 *                  before
 */
int tera_init(const struct tera_options *options);

/* ---- Memory ------------------------------------------------------------ */

/*
 * As malloc, calloc, realloc and free, in paged memory, aligned to 16 bytes.
 * Allocations of 128 KiB and more begin at a block and give their frames and
 * their part of the store back at once when freed. tera_realloc of such a one
 * grows it where it is if it can.
 *
 * NULL: ENOMEM, no address space is left; or why the pager could not be started.
 * An allocation of 0 bytes has an address of its own. tera_realloc(NULL, n) is
 * tera_malloc(n); tera_realloc(p, 0) makes p 0 bytes long.
 *
 * Not for vmsplice, MSG_ZEROCOPY, or direct I/O where its pages are not pinned
 * (NFS; any before Linux 6.8): see docs/c-api.md.
 */
void *tera_malloc(size_t len);
void *tera_calloc(size_t count, size_t len);
void *tera_realloc(void *at, size_t len);

/*
 * 0; NULL is nothing. -1 with EINVAL for an address that was not allocated or
 * is free already; nothing has happened then.
 */
int tera_free(void *at);

/* The names that Teramem had for them. */
void *teramalloc(size_t len);
void terafree(void *at);

/* ---- Advice ------------------------------------------------------------ */

/*
 * Advice about part of an allocation or mapping. None changes a byte.
 */
enum tera_advice {
    TERA_WILL_NEED = 1,  /* touched soon: read now, as much as a quarter of the budget */
    TERA_DONE_WITH = 2,  /* not touched soon: leaves memory first; only blocks wholly inside */
    TERA_SEQUENTIAL = 3, /* touched in order, as the pager expects: undoes TERA_RANDOM */
    TERA_RANDOM = 4      /* touched in no order: nothing is read ahead */
};

/* 0, or -1 with EINVAL: not all of it is tera_* memory, or no such advice. */
int tera_advise(const void *at, size_t len, int advice);

/* ---- Files ------------------------------------------------------------- */

enum {
    TERA_RDONLY = 1, /* changes stay in memory and are lost with the mapping */
    TERA_RDWR = 2    /* tera_sync and tera_unmap write changes to the file */
};

/*
 * Maps `len` bytes of a file (or block device) from `offset` on; len 0 is all that follows. What
 * lies beyond the file's end reads as zeros and is never written. The file is read block by block
 * as it is touched. `len_out`, unless it is NULL, gets the length in bytes. Each block costs 32
 * bytes of memory at once, touched or not: 2 GiB for 1 TiB in blocks of 16 KiB, holes too.
 *
 * Nobody else may change the file meanwhile, and no part of it be mapped twice. A block that was
 * read, and comes back different, stops the program. A file never changes before tera_sync or
 * tera_unmap; what was not synced when the process ends is lost.
 *
 * NULL:
 *   ENOENT, EACCES, ETXTBSY ...  as open(2) answers for the path and flags
 *   EISDIR, ENODEV  a directory; something else that is not a file, or has fewer bytes than it says
 *                   (/sys)
 *   EINVAL          offset is no multiple of 4096; there is nothing to map (an empty file, or
 *                   offset behind its end); unknown flags
 *   ENFILE          about 250 files are mapped already
 *   ENOMEM          no address space is left
 */
void *tera_map_file(const char *path, uint64_t offset, size_t len, int flags, size_t *len_out);

/*
 * Writes what was changed in the mapping that begins at `at` to its file and
 * waits until it is durable (fdatasync). What other threads write to it at the same
 * time gets there now or with the next call. 0; or -1 and the errno of the
 * write (ENOSPC, EFBIG, EIO, ...): the next call tries again what is missing. EINVAL:
 * no mapping begins there.
 */
int tera_sync(const void *at);

/*
 * tera_sync, then ends the mapping. -1 as there, and the mapping is as it was.
 */
int tera_unmap(void *at);

/* ---- What happens ------------------------------------------------------ */

struct tera_stats {
    uint64_t budget_bytes;        /* the budget */
    uint64_t block_bytes;         /* the size of a block */
    uint64_t resident_bytes;      /* frames in use, and bounce buffers */
    uint64_t resident_peak_bytes; /* the most there were */
    uint64_t store_bytes;         /* of the store in use */
    uint64_t first_touches;       /* touches of blocks never touched before */
    uint64_t hard_faults;         /* touches of blocks that had to be read */
    uint64_t soft_faults;         /* touches of blocks that still had their frame */
    uint64_t page_in_bytes;       /* read from the store and from mapped files */
    uint64_t page_out_bytes;      /* written to the store */
};

/* 0, or -1 with EINVAL before the pager was started. */
int tera_stats(struct tera_stats *stats);

/* The message of the last failure in this thread, "" if there was none. Valid
 * until the next failure in this thread. */
const char *tera_error(void);

/* ---- Fork -------------------------------------------------------------- */

/*
 * A child made by fork() sees memory as it was at the fork, through a pager of
 * its own with the same budget, and its changes are its own. A mapped file is shared
 * with the parent: a child that is to read it should be the only one that does, or
 * nobody should sync. Children made by vfork() or posix_spawn() touch
 * no tera_* memory. A fork waits for a tera_sync under way.
 */

#ifdef __cplusplus
}
#endif
#endif

/* Bytes of a page: 4 KiB, unless the compiler gets -DPAGE_BYTES=16384. */
#ifndef PAGE_H
#define PAGE_H
#include <stddef.h>

#ifndef PAGE_BYTES
#define PAGE_BYTES 4096
#endif
#define PAGE ((size_t)PAGE_BYTES)
#endif

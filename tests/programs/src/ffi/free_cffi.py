"""Objects of the C library, freed by functions that cffi looks up in the C library's handle.

usage: free_cffi.py MIB
"""

import sys

import cffi

ffi = cffi.FFI()
ffi.cdef("char *strdup(const char *text); void *realloc(void *at, size_t size); void free(void *at);")
libc = ffi.dlopen("libc.so.6")


def text(index):
    return b"%d " % index * 150


count = int(sys.argv[1]) << 10
all_texts = [libc.strdup(text(index)) for index in range(count)]
for index, at in enumerate(all_texts):
    if index % 3 == 0:
        all_texts[index] = ffi.cast("char *", libc.realloc(at, 3000))
for index, at in enumerate(all_texts):
    assert ffi.string(at) == text(index), index
    libc.free(at)
print(count, "texts")

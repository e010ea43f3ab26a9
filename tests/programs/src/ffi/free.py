"""Objects of the C library, freed by functions that ctypes looks up in the C library's handle.

usage: free.py MIB
"""

import ctypes
import sys

libc = ctypes.CDLL("libc.so.6")
for name in ("strdup", "realloc", "malloc"):
    getattr(libc, name).restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.free.restype = None


def text(index):
    return b"%d " % index * 150


count = int(sys.argv[1]) << 10
all_texts = [libc.strdup(text(index)) for index in range(count)]
for index, at in enumerate(all_texts):
    if index % 3 == 0:
        all_texts[index] = libc.realloc(at, 3000)
for index, at in enumerate(all_texts):
    assert ctypes.string_at(at) == text(index), index
    libc.free(at)
# malloc of the handle, free of the whole program, and the reverse.
program = ctypes.CDLL(None)
program.free.argtypes = [ctypes.c_void_p]
program.strdup.restype = ctypes.c_void_p
for size in range(1, 5000):
    program.free(libc.malloc(size))
    libc.free(program.strdup(b"x" * size))
print(count, "texts")

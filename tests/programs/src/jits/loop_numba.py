"""A loop that LLVM compiles, and an array beyond the budget."""
import sys

import numba
import numpy


@numba.njit
def work(many):
    t = 0
    for i in range(many):
        t = (t + i * 7) % 1000003
    return t


@numba.njit
def fill(words):
    for i in range(words.size):
        words[i] = i * 3


@numba.njit
def wrong(words):
    count = 0
    for i in range(words.size):
        count += words[i] != i * 3
    return count


words = numpy.empty(int(sys.argv[1]) * 8, numpy.int64)
fill(words)
assert wrong(words) == 0 and wrong(words[::-1]) > 0
print(work(50_000_000), words.size, int(words.sum() % 1000003))

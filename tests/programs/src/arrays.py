"""numpy on large arrays: argument 1 is the number of values. Prints checksums and checks known results."""

import sys

import numpy as np

n = int(sys.argv[1])
# Multiplication by an odd number permutes the 32-bit values, so no value comes twice.
index = np.arange(n, dtype=np.uint32)
values = index * np.uint32(2654435761)
ordered = np.sort(values)
assert bool((ordered[1:] > ordered[:-1]).all()), "sort: not in order, or a value lost"
assert int(values.sum(dtype=np.uint64)) == int(ordered.sum(dtype=np.uint64)), "sort: the sum changed"
print("sort", int(np.bitwise_xor.reduce(ordered[::7])))
del ordered

# Neighbours in a stride, and a gather with indices that jump within pages.
places = (index ^ np.uint32(5)) % np.uint32(n)
gathered = values[places]
assert int(gathered[0]) == int(values[5]) and int(gathered[5]) == int(values[0]), "fancy indexing"
print("gather", int(np.bitwise_xor.reduce(gathered)), int(values[values % 3 == 0].size))
del places, gathered, values

side = int((n / 8) ** 0.5)
left = (np.arange(side * side, dtype=np.float64) % 17).reshape(side, side)
right = np.eye(side)[::-1]
assert bool((left.dot(right) == left[:, ::-1]).all()), "dot: not the mirrored matrix"
print("dot", int(left.dot(left.T).trace()), "of", side)

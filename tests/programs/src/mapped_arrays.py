"""numpy.memmap: columns, random rows and the sum of a matrix in a file.

usage: mapped_arrays.py make|read|change FILE MIB
"""

import sys

import numpy as np

what, path, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
COLUMNS = 512
shape = ((mib << 20) // 8 // COLUMNS, COLUMNS)
if what == "make":
    matrix = np.memmap(path, np.int64, "w+", shape=shape)
    for row in range(shape[0]):
        matrix[row] = np.arange(row * 7, row * 7 + COLUMNS) ** 2 % 1000003
    matrix.flush()
elif what == "change":
    # Mode "c": changes stay in memory.
    matrix = np.memmap(path, np.int64, "c", shape=shape)
    half = shape[0] // 2
    matrix[:half] += 5
    matrix[:: 100, 3] = -1
    print("changed", int(matrix.sum()), int(matrix[:half].max()), int((matrix == -1).sum()))
    rows = np.random.default_rng(7).integers(0, shape[0], 3000)
    print("rows", int(matrix[rows].sum()))
    for row in (1, half - 1, half, shape[0] - 1):
        assert (np.delete(matrix[row], 3) == np.delete(np.arange(row * 7, row * 7 + COLUMNS) ** 2 % 1000003, 3) + (5 if row < half else 0)).all()
    with open(path, "rb") as file:
        assert (np.frombuffer(file.read(COLUMNS * 8), np.int64) == np.arange(COLUMNS) ** 2 % 1000003).all()
else:
    matrix = np.memmap(path, np.int64, "r", shape=shape)
    for column in (3, 100, 511):
        found = int(matrix[:, column].sum())
        assert found == int(((np.arange(shape[0]) * 7 + column) ** 2 % 1000003).sum())
        print("column", column, found)
    rows = np.random.default_rng(7).integers(0, shape[0], 3000)
    print("rows", int(matrix[rows].sum()))
    print("sum", int(matrix.sum()), int(matrix[:: 17, 5:9].max()))

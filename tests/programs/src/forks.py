"""Forks of Python with numpy, while its libraries' tables, locale and objects have left memory: argument 1 is the number of values."""

import os
import sys

import numpy as np

n = int(sys.argv[1])
small = [str(i) * 20 for i in range(n // 100)]
values = np.arange(n, dtype=np.int64)
for turn in range(6):
    values += 1
    total = int(values[::512].sum())
    child = os.fork()
    if child == 0:
        good = int(values[::512].sum()) == total and len("".join(small[::7])) > 0
        os._exit(20 + turn if good else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 20 + turn, f"the child's status is {status}"
assert small == [str(i) * 20 for i in range(n // 100)], "small objects"
print("forks", int(np.bitwise_xor.reduce(values)))

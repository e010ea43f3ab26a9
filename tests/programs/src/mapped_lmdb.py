"""LMDB: a scan and random gets of a database that is only read.

usage: mapped_lmdb.py make|read FILE MIB
"""

import hashlib
import random
import sys

import lmdb

what, path, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
KEYS = mib * 1000


def value(key):
    return hashlib.sha256(b"%d" % key).digest() * 28


if what == "make":
    with lmdb.open(path, subdir=False, map_size=4 * mib << 20) as base, base.begin(write=True) as write:
        for key in range(KEYS):
            write.put(b"%09d" % key, value(key), append=True)
else:
    with lmdb.open(path, subdir=False, map_size=4 * mib << 20, readonly=True, lock=False) as base, base.begin(buffers=True) as read:
        keys = random.Random(7)
        for _ in range(5000):
            key = keys.randrange(KEYS)
            assert read.get(b"%09d" % key) == value(key)
        seen = hashlib.sha256()
        for count, (key, found) in enumerate(read.cursor()):
            assert key == b"%09d" % count
            seen.update(found)
        print(count + 1, seen.hexdigest())

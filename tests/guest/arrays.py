"""Arrays of three times the budget: made, sorted, added up; prints what came out."""

import hashlib

import numpy as np

a = np.random.default_rng(7).random(12 << 20)
b = np.sort(a)
print(hashlib.sha256(b).hexdigest(), float(a.sum()), int((b[1:] < b[:-1]).sum()))

"""numpy: sorts 20 million numbers, and looks some of them up."""

import numpy as np

values = (np.arange(20_000_000, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(4294967291)
order = np.sort(values)
places = np.searchsorted(order, values[:5])
print("five values:", values[:5])
print("their places in order:", places)

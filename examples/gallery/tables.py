"""pandas: groups two million rows, merges the groups with them, and sorts."""

import numpy as np
import pandas as pd

random = np.random.default_rng(1)
rows = 2_000_000
sales = pd.DataFrame({"shop": random.integers(0, 200_000, rows), "price": random.random(rows), "pieces": random.integers(0, 100, rows)})
shops = sales.groupby("shop").agg(mean=("price", "mean"), pieces=("pieces", "sum")).reset_index()
both = sales.merge(shops, on="shop", suffixes=("", "_of_shop")).sort_values(["pieces_of_shop", "price"])
print(both.tail(3).to_string(index=False))

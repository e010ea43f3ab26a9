"""A loop that is fast only when compiled, and objects beyond the budget."""
import sys

many = int(sys.argv[1])
t = 0
for i in range(20_000_000):
    t = (t + i * 7) % 1000003
rows = [[i, i * 0.5, "row %d" % i] for i in range(many)]
total = 0
for _ in range(2):
    for i in range(many):
        row = rows[i]
        assert row[0] == i and row[2] == "row %d" % i
        total = (total + int(row[1] * 2)) % 1000003
print(t, many, total)

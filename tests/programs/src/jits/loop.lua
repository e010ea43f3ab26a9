-- A loop that only its compiler makes fast, and tables beyond the budget.
local many = tonumber(arg[1])
local t = 0
for i = 1, 50000000 do t = (t + i * 7) % 1000003 end
local rows = {}
for i = 1, many do rows[i] = { i, i * 0.5, "row " .. i } end
local sum = 0
for round = 1, 2 do
  for i = 1, many do
    local row = rows[i]
    assert(row[1] == i and row[3] == "row " .. i)
    sum = (sum + row[2] * 2) % 1000003
  end
end
print(t, many, sum)

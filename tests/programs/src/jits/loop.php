<?php
// A loop that only its compiler makes fast, and arrays beyond the budget.
$many = (int)$argv[1];
$t = 0;
for ($i = 0; $i < 50000000; $i++) $t = ($t + $i * 7) % 1000003;
$rows = [];
for ($i = 0; $i < $many; $i++) $rows[] = [$i, $i * 0.5, "row $i"];
$sum = 0;
for ($round = 0; $round < 2; $round++) {
    for ($i = 0; $i < $many; $i++) {
        $row = $rows[$i];
        if ($row[0] !== $i || $row[2] !== "row $i") exit(9);
        $sum = ($sum + (int)($row[1] * 2)) % 1000003;
    }
}
$jit = opcache_get_status(false)['jit'];
if (!$jit['on'] || $jit['buffer_free'] >= $jit['buffer_size']) exit(8);
echo "$t $many $sum\n";

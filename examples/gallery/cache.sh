#!/bin/sh
# Redis: a server of its own with 30,000 values of 8 KiB, of which 2,000 are read five times.
set -e
place=$(mktemp -d)
trap 'kill $server; wait; rm -rf "$place"' EXIT
redis-server --port 0 --unixsocket "$place/socket" --enable-debug-command local --save "" --dir "$place" >"$place/log" &
server=$!
ask() { redis-cli -s "$place/socket" "$@"; }
until ask ping >/dev/null 2>&1; do sleep 0.05; done
ask debug populate 30000 key 8192 >/dev/null
echo "values: $(ask dbsize)"
for pass in 1 2 3 4 5; do
    echo "pass $pass: $(seq 0 1999 | sed 's/^/get key:/' | ask | tr -d '\n' | wc -c) bytes"
done

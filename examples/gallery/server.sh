#!/bin/sh
# PostgreSQL: a server of its own that joins, groups and sorts 300,000 rows with one large work_mem.
set -e
place=$(mktemp -d)
stop() { [ ! -e "$place/db/postmaster.pid" ] || kill -INT "$(head -1 "$place/db/postmaster.pid")"; wait; rm -rf "$place"; }
trap stop EXIT
# The server does not run as root.
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
[ "$(id -u)" != 0 ] || chown 65534:65534 "$place"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
cd "$place"
as "$bin/initdb" -D db -A trust -U me -E UTF8 --locale=C >/dev/null
as "$bin/postgres" -D db -k "$place" -h "" >log 2>&1 &
until as psql -h "$place" -U me -qAtc "select 1" postgres >/dev/null 2>&1; do sleep 0.1; done
as psql -h "$place" -U me -qAt -F " " postgres <<'SQL'
SET work_mem = '1GB'; SET max_parallel_workers_per_gather = 0; SET enable_mergejoin = off; SET jit = off;
CREATE TEMP TABLE a AS SELECT i, i::bigint * 7919 % 100003 AS k, md5(i::text) AS t FROM generate_series(1, 300000) i;
SELECT 'pairs', count(*) FROM a JOIN a b ON a.k = b.k AND a.i < b.i;
SELECT 'groups', count(*), max(c) FROM (SELECT k, count(*) c, max(t) FROM a GROUP BY k) g;
SELECT 'in order', t FROM (SELECT t, row_number() OVER (ORDER BY t) n FROM a) s WHERE n % 100000 = 0;
SQL

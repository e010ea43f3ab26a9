"""The programs of `rivals`: each a few lines, which find less memory than they want hard.

A task is a program and the budget that it gets in MiB, or None for a share of its native peak. Natively a program takes
2 to 15 s. `HARD` are those that are known to be slow within little memory, `OTHERS` programs that nothing was tuned
for, and `SPECIAL` ones run only if they are named.
"""

import random

from inputs import alignments, built, lines
from works import Program, python


def pairs(place, nodes):
    """Makes an order of nodes for tsort, each before two random others, at random places of the file."""
    source = random.Random(5)
    order = list(range(nodes))
    source.shuffle(order)
    with open(place / "pairs", "w", encoding="ascii") as file:
        for _ in range(2 * nodes):
            before = source.randrange(nodes - 1)
            file.write(f"n{order[before]:x} n{order[source.randrange(before + 1, nodes)]:x}\n")


def objects(place, count):
    """Makes a JSON array of objects with pseudo-random keys."""
    with open(place / "objects.json", "w", encoding="ascii") as file:
        items = ('{"id":%d,"k":"%x","v":[%d,%d]}' % (i, i * 2654435761 % 4294967296, i % 97, i % 89) for i in range(count))
        file.write("[" + ",\n".join(items) + "]")


def of(name, does, command, budget=None, **more):
    """A task."""
    return Program(name, does, command, **more), budget


def compiled(name, does, language, source, words, budget=None, apt="g++", **more):
    """A task whose program is built from one source."""
    return of(name, does, ["{place}/p"], budget, apt=apt, tool=words[0], prepare=(built, *words), files={f"p.{language}": source}, **more)


def java(name, collector):
    """The table of a million objects with this collector."""
    words = ["java", "-Xmx1400m", f"-XX:+Use{collector}GC", "-Xshare:auto", "{place}/Main.java"]
    return of(name, f"a HashMap of 6 million ({collector})", words, apt="default-jdk-headless", files={"Main.java": JAVA})


def sort(mib):
    """GNU sort of 600 MB with a separate budget."""
    words = ["sort", "-S", "2G", "--parallel=2", "{place}/text", "-o", "{out}/sorted"]
    return of(f"sort-{mib}", f"GNU sort of 600 MB within {mib} MiB", words, mib, apt="coreutils", prepare=(lines, "text", 12_240_000),
              outputs=("sorted",), env={"LC_ALL": "C"})


MAP = """
#include <cstdio>
#include <map>
#include <string>
int main() {
    std::map<std::string, std::string> m;
    for (long i = 0; i < 1500000; i++) m["key " + std::to_string(i * 7919 % 1500007)] = "value " + std::to_string(i);
    long s = 0;
    for (auto &e : m) s = (s * 31 + e.first.size() + e.second.back()) % 1000003;
    std::printf("%zu %ld\\n", m.size(), s);
}
"""

JAVA = """
import java.util.*;
public class Main { public static void main(String[] a) { Map<Long, String> m = new HashMap<>();
 for (long i = 0; i < 6_000_000; i++) m.put(i * 7919 % 6_000_011, "v" + i);
 long s = 0; for (var e : m.entrySet()) s = (s * 31 + e.getKey() + e.getValue().length()) % 1000003;
 System.out.println(m.size() + " " + s); } }
"""

GRAPH = """
#include <cstdio>
#include <vector>
int main() {
    const unsigned n = 1u << 21, degree = 12;
    std::vector<unsigned> edge(size_t(n) * degree);
    unsigned long x = 88172645463325252ul;
    for (auto &e : edge) {
        unsigned v = 0;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        for (int bit = 0; bit < 21; bit++) v = v << 1 | ((x >> bit * 3 & 7) < 3);
        e = v;
    }
    std::vector<float> rank(n, 1.0f / n), next(n);
    for (int turn = 0; turn < 8; turn++) {
        for (unsigned v = 0; v < n; v++) {
            float sum = 0;
            for (unsigned i = 0; i < degree; i++) sum += rank[edge[size_t(v) * degree + i]];
            next[v] = 0.15f / n + 0.85f * sum / degree;
        }
        rank.swap(next);
    }
    double s = 0;
    for (float r : rank) s += r;
    std::printf("%.9e\\n", s);
}
"""

JOIN = """
#include <cstdint>
#include <cstdio>
#include <vector>
int main() {
    const uint64_t slots = 1 << 23, rows = 5000000, probes = 20000000;
    struct Slot { uint64_t key, value; };
    std::vector<Slot> table(slots);
    for (uint64_t i = 1; i <= rows; i++) {
        uint64_t at = i * 11400714819323198485ul >> 41;
        while (table[at].key) at = (at + 1) % slots;
        table[at] = {i, i * 31};
    }
    std::vector<uint32_t> found(probes);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < probes; i++) {
        uint64_t key = i * i % 1000 < 900 ? i % 400000 + 1 : i * 7919 % rows + 1, at = key * 11400714819323198485ul >> 41;
        while (table[at].key != key) at = (at + 1) % slots;
        found[i] = table[at].value, sum += found[i];
    }
    std::printf("%lu\\n", sum);
}
"""

PHP = """
$a = []; for ($i = 0; $i < 3000000; $i++) $a["k" . ($i * 7919 % 3000017)] = "v" . $i;
ksort($a); $s = 0; foreach ($a as $k => $v) $s = ($s * 31 + strlen($k) + strlen($v)) % 1000003; echo count($a), ' ', $s, PHP_EOL;
"""

DICTS = """
import random
random.seed(7); d = {n: {"id": n, "name": f"name {n}", "at": n * 1.5} for n in range(300_000)}
s = 0
for n in random.sample(range(300_000), 50_000): s = (s * 31 + d[n]["id"] + len(d[n]["name"])) % 1000003
print(len(d), s)
"""

PYPY = """
d = {i * 7919 % 1000003: (i, str(i)) for i in range(1000000)}; l = sorted(d.items(), key=lambda e: e[1][1]); s = 0
for i in range(6000000): s = (s * 31 + len(d.get(i * 104729 % 1000003, "")[1:])) % 1000003
print(len(d), l[1000], s, sum(k * len(v[1]) for k, v in l) % 1000003)
"""

LUAJIT = """
local t = {} for i = 1, 3000000 do t[i] = {i, key = i * 7919 % 3000017} end
table.sort(t, function(a, b) return a.key < b.key end)
local s = 0 for i = 1, #t do s = (s * 31 + t[i][1]) % 1000003 end print(#t, s)
"""

LUA = """
local t = {} for i = 1, 900000 do t['k' .. i * 7919 % 900001] = {i} end local l = {} for k in pairs(t) do l[#l + 1] = k end
table.sort(l) local s = 0 for _, k in ipairs(l) do s = (s * 31 + #k + t[k][1]) % 1000003 end print(#l, s)
"""

PERL = """
my %h; $h{sprintf("%08x", $_ * 2654435761 % 4294967296)} = "v$_" for 1..1000000;
my $s = 0; for (sort keys %h) { $s = ($s * 31 + length($h{$_})) % 1000003 } print scalar(keys %h), " $s\\n"
"""

OCAML = """
module M = Map.Make(Int)
let () = let m = ref M.empty and h = Hashtbl.create 10 in
 for i = 1 to 1_400_000 do let k = i * 7919 mod 1_400_017 in m := M.add k (string_of_int i) !m; Hashtbl.replace h k i done;
 Printf.printf "%d %d %d\\n" (M.cardinal !m) (Hashtbl.length h) (M.fold (fun k v s -> (s * 31 + k + String.length v) mod 1000003) !m 0)
"""

FFTW = """
#include <fftw3.h>
#include <stdio.h>
int main(void) { long n = 1 << 25; fftw_complex *a = fftw_alloc_complex(n); fftw_plan p = fftw_plan_dft_1d(n, a, a, FFTW_FORWARD, FFTW_ESTIMATE);
 for (long i = 0; i < n; i++) a[i][0] = i * 7919 % 10007, a[i][1] = 0;
 fftw_execute(p); double s = 0; for (long i = 0; i < n; i++) s += a[i][0] * a[i][0] + a[i][1] * a[i][1]; printf("%.9e\\n", s / n); }
"""

MEMCACHED = """
import os, random, socket, subprocess, sys, time
path, count = sys.argv[1] + "/socket", 300000
user = ["-u", "root"] if os.geteuid() == 0 else []
server = subprocess.Popen(["memcached", "-s", path, "-m", "1024", "-t", "2", *user])
link = socket.socket(socket.AF_UNIX)
while link.connect_ex(path): time.sleep(0.02)
answers = link.makefile("rb")
value = lambda n: (b"%d/" % n * 250)[:500]
for n in range(0, count, 100): link.sendall(b"".join(b"set k%d 0 0 500 noreply\\r\\n%s\\r\\n" % (m, value(m)) for m in range(n, n + 100)))
order = random.Random(3); found = bad = 0
for _ in range(4000):
    keys = order.sample(range(count), 50)
    link.sendall(b"get " + b" ".join(b"k%d" % n for n in keys) + b"\\r\\n")
    while (line := answers.readline()) != b"END\\r\\n":
        n = int(line.split()[1][1:]); found += 1; bad += answers.readline()[:-2] != value(n)
print("found", found, "wrong", bad)
server.terminate(); server.wait(); os.remove(path)
"""

REDIS = """
cd "$2"
redis-server --port 0 --unixsocket "$2/socket" --enable-debug-command local --save "" --dir "$2" --dbfilename dump.rdb --daemonize no >/dev/null &
server=$!
until redis-cli -s "$2/socket" ping >/dev/null 2>&1; do sleep 0.05; done
redis-cli -s "$2/socket" debug populate 1200000 key 100 >/dev/null
redis-cli -s "$2/socket" eval "local s, x = 0, 1 for i = 1, 400000 do x = (x * 1103515245 + 12345) % 2147483648
 s = s + #redis.call('get', 'key:' .. x % 1200000) end return s" 0
redis-cli -s "$2/socket" save
redis-cli -s "$2/socket" dbsize
redis-cli -s "$2/socket" shutdown nosave
wait $server
rm -f "$2/dump.rdb"
"""

HARD = [
    of("pypy", "a dict of a million, sorted", ["pypy3", "-c", PYPY], 243, apt="pypy3"),
    of("luajit", "a table of 3 million tables, sorted", ["luajit", "-e", LUAJIT], 210, apt="luajit", version=("-v",)),
    compiled("ocaml", "a Map and a Hashtbl of 1.4 million", "ml", OCAML, ["ocamlopt", "-o", "p", "p.ml"], 107, apt="ocaml-nox"),
    of("perl", "a hash of a million strings, sorted", ["perl", "-e", PERL], apt="perl"),
    of("tsort", "two million pairs of a million nodes", ["tsort", "{place}/pairs"], apt="coreutils", prepare=(pairs, 1_000_000)),
    of("jq", "sorts 400,000 objects", ["jq", "-c", "sort_by(.k) | map(.v[0]) | length, add, .[1000]", "{place}/objects.json"],
       apt="jq", prepare=(objects, 400_000)),
    of("samtools", "sorts a million alignments", ["bash", "-o", "pipefail", "-c", "samtools sort -m 2G -O sam --no-PG {place}/reads.sam 2>/dev/null | sha256sum"],
       apt="samtools", tool="samtools", prepare=(alignments, 2_000_000, 1_000_000)),
    of("memcached", "sets 300,000 values, gets 200,000 at random", ["/usr/bin/python3", "{place}/client.py", "{out}"], apt="memcached", tool="memcached",
       version=("-V",), files={"client.py": MEMCACHED}),
    compiled("fftw", "a transform of 2^25 numbers in place", "c", FFTW, ["gcc", "-O2", "-o", "p", "p.c", "-lfftw3", "-lm"], 230, apt="libfftw3-dev gcc"),
    of("redis", "loads 1.2 million values, reads 400,000, saves", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="redis-server", tool="redis-server",
       files={"script.sh": REDIS}),
    of("php", "3 million strings and ksort", ["php", "-d", "memory_limit=-1", "-r", PHP], 154, apt="php-cli", version=("-v",)),
    sort(768),
    sort(1024),
    compiled("map", "std::map<string, string> of 1.5 million", "cpp", MAP, ["g++", "-O2", "-o", "p", "p.cpp"]),
    java("java-parallel", "Parallel"),
    java("java-g1", "G1"),
    (python("dicts", "a dict of 300,000 dicts, 50,000 looked up", "", DICTS), None),
    compiled("pagerank", "8 turns over 25 million edges", "cpp", GRAPH, ["g++", "-O2", "-o", "p", "p.cpp"]),
]

GUILE = """
(define h (make-hash-table))
(do ((i 0 (+ i 1))) ((= i 500000)) (hash-set! h (modulo (* i 7919) 500009) (list i (number->string i))))
(define l (sort (hash-map->list cons h) (lambda (a b) (< (car a) (car b)))))
(display (length l)) (newline)
(display (let loop ((l l) (s 0)) (if (null? l) s (loop (cdr l) (modulo (+ (* s 31) (cadar l) (string-length (caddar l))) 1000003)))))
"""

RACKET = """#lang racket/base
(define h (for/fold ([h (hash)]) ([i (in-range 1200000)]) (hash-set h (modulo (* i 7919) 1200007) (number->string i))))
(define l (sort (hash-keys h) <))
(printf "~a ~a" (hash-count h) (for/fold ([s 0]) ([k (in-list l)]) (modulo (+ (* s 31) k (string-length (hash-ref h k))) 1000003)))
"""

SBCL = """
(let ((h (make-hash-table :test 'equal)) (s 0))
 (dotimes (i 1500000) (setf (gethash (format nil "~36r" (mod (* i 7919) 1500007)) h) (cons i (list i))))
 (let ((k (sort (loop for k being the hash-keys of h collect k) #'string<)))
  (dolist (x k) (setf s (mod (+ (* s 31) (length x) (car (gethash x h))) 1000003))))
 (format t "~a ~a~%" (hash-table-count h) s))
"""

HASKELL = """
import qualified Data.Map.Strict as M
import Data.List (foldl')
main :: IO ()
main = do
  let m = foldl' (\\a i -> M.insert (i * 7919 `mod` 1000003) (show i) a) M.empty [1 .. 1000000 :: Int]
  print (M.size m, foldl' (\\s (k, v) -> (s * 31 + k + length v) `mod` 1000003) 0 (M.toList m))
"""

TCL = """
for {set i 0} {$i < 1000000} {incr i} { dict set d [expr {$i * 7919 % 1000003}] v$i }
set s 0
foreach k [lsort -integer [dict keys $d]] { set s [expr {($s * 31 + $k + [string length [dict get $d $k]]) % 1000003}] }
puts "[dict size $d] $s"
"""

ERLANG = """T = ets:new(t, [ordered_set]), [ets:insert(T, {I * 7919 rem 800011, I, integer_to_list(I)}) || I <- lists:seq(1, 800000)],
 io:format("~p~n", [ets:foldl(fun({K, I, V}, S) -> (S * 31 + K + I + length(V)) rem 1000003 end, 0, T)]), halt()."""

SQLITE = """
CREATE TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT i, hex(i * 2654435761 % 4294967296) AS t FROM n;
CREATE INDEX at ON a(t); CREATE INDEX ai ON a(i);
SELECT count(*), sum(i) FROM (SELECT i FROM a ORDER BY t LIMIT 1000000);
"""

RUBY = """
h = {}; 1.upto(1_500_000) { |i| h[(i * 2654435761 % 4294967296).to_s(36)] = [i] }
s = 0; h.sort_by { |k, v| k }.each { |k, v| s = (s * 31 + k.size + v[0]) % 1000003 }; puts h.size, s
"""

NODE = """
const m = new Map(); for (let i = 0; i < 1.5e6; i++) m.set((i * 7919 % 1500007).toString(36), {i, v: "v" + i});
let s = 0; for (const k of [...m.keys()].sort()) s = (s * 31 + m.get(k).i + k.length) % 1000003; console.log(m.size, s)
"""

GAWK = """
BEGIN { for (i = 0; i < 1000000; i++) a["k" (i * 7919 % 1000003)] = "v" i; n = asorti(a, b)
 s = 0; for (i = 1; i <= n; i++) s = (s * 31 + length(b[i]) + length(a[b[i]])) % 1000003; print n, s }
"""

MANY = "#include <map>\n#include <string>\n" + "".join(
    f"int f{n}() {{ std::map<std::string, int> m; auto g = [&](auto x) {{ m[std::to_string(x + {n})]++; }}; g({n}); g({n}.0); return m.size(); }}\n"
    for n in range(300))

OTHERS = [
    of("ruby", "a Hash of 1.5 million strings, sorted", ["ruby", "-e", RUBY], apt="ruby"),
    of("node", "a Map of 1.5 million objects, sorted", ["node", "--max-old-space-size=4096", "-e", NODE], apt="nodejs"),
    of("gawk", "an array of a million strings, sorted", ["gawk", GAWK], apt="gawk"),
    of("guile", "a hash table of 500,000 lists, sorted", ["guile", "--no-auto-compile", "{place}/p.scm"], apt="guile-3.0", files={"p.scm": GUILE}),
    of("racket", "an immutable hash of 1.2 million, sorted", ["racket", "{place}/p.rkt"], apt="racket", files={"p.rkt": RACKET}),
    of("sbcl", "a hash table of 1.5 million strings, sorted", ["sbcl", "--dynamic-space-size", "4GB", "--script", "{place}/p.lisp"], apt="sbcl",
       files={"p.lisp": SBCL}),
    compiled("haskell", "a Map of a million", "hs", HASKELL, ["ghc", "-O1", "-o", "p", "p.hs"], apt="ghc"),
    of("tcl", "a dict of a million, sorted", ["tclsh", "{place}/p.tcl"], apt="tcl", files={"p.tcl": TCL}, version=("-v",)),
    of("lua", "a table of 900,000 strings, sorted", ["lua5.4", "-e", LUA], apt="lua5.4", version=("-v",)),
    of("erlang", "an ordered ets table of 800,000", ["erl", "-noshell", "-eval", ERLANG], apt="erlang-base",
       version=("-noshell", "-eval", 'io:format("~s~n",[erlang:system_info(otp_release)]), halt().')),
    of("sqlite", "builds two indices over 2 million rows in memory", ["sqlite3", ":memory:", ".read {place}/p.sql"], apt="sqlite3", files={"p.sql": SQLITE}),
    of("gcc", "compiles 300 functions of templates", ["g++", "-O1", "-c", "{place}/p.cpp", "-o", "{out}/p.o"], apt="g++", outputs=("p.o",), files={"p.cpp": MANY}),
]

GO = """
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
)

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	parts := make([][]uint64, mib/8)
	x := uint64(88172645463325252)
	for i := range parts {
		parts[i] = make([]uint64, 1<<20)
		for j := range parts[i] {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			parts[i][j] = x
		}
	}
	var sum uint64
	for turn := 0; turn < 3; turn++ {
		for _, part := range parts {
			for _, v := range part {
				sum = sum*31 + v
			}
		}
	}
	if os.Args[2] == "sort" {
		for _, part := range parts {
			slices.Sort(part)
		}
		for _, part := range parts {
			sum = sum*31 + part[len(part)/2]
		}
	}
	fmt.Println(sum)
}
"""


def go(does, mib):
    """Slices in Go."""
    return of(f"go-{does}-{mib}", f"{does}s {mib} MiB of slices in Go", ["{place}/p", str(mib), does], apt="golang-go", tool="go", version=("version",),
              prepare=(built, "go", "build", "-o", "p", "p.go"), files={"p.go": GO})


SPECIAL = [
    *(go(does, mib) for mib in (512, 2048) for does in ("scan", "sort")),
    compiled("join", "a hash join, 20 million probes: random touches alone, so that no way ends soon", "cpp", JOIN, ["g++", "-O2", "-o", "p", "p.cpp"]),
]

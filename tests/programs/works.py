"""Real programs for the page "works with": how each is found, fed and run.

What a program writes to standard output is compared between runs, and so are the files that are named.
`prepare` is a function and its arguments, after the directory: it makes inputs, or builds the program.
Sizes are such that a program has a peak of 0.3 to 2 GiB and takes 2 to 30 s natively on two processors; inputs take 2.5 GB of disk.
"""

from dataclasses import dataclass, field

from inputs import alignments, boot, built, documents, genome, lines, logs, ordered, orders, reads, versions


@dataclass(frozen=True)
class Program:
    """One program of the page."""

    name: str
    does: str
    command: list
    apt: str = ""
    pip: str = ""
    prepare: tuple = ()
    files: dict = field(default_factory=dict)
    outputs: tuple = ()
    env: dict = field(default_factory=dict)
    tool: str = ""
    version: tuple = ("--version",)
    remark: str = ""


def python(name, does, pip, script, remark=""):
    """A program in Python, with a package."""
    return Program(name, does, ["python3", "{place}/script.py", "{place}"], pip=pip, files={"script.py": script}, remark=remark)


ONE_THREAD = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2"}

PROGRAMS = [
    Program("GNU sort", "sorts a text of 400 MB", ["sort", "-S", "2G", "--parallel=2", "{place}/text", "-o", "{out}/sorted"],
            apt="coreutils", prepare=(lines, "text", 8_200_000), outputs=("sorted",), env={"LC_ALL": "C"}),
    Program("zstd", "compresses a log of 310 MB, level 12, long distances", ["zstd", "-q", "-12", "--long=28", "-T2", "-f", "{place}/0.log", "-o", "{out}/packed"],
            apt="zstd", prepare=(logs, 1, 2_200_000), outputs=("packed",)),
    Program("SQLite", "joins tables of 3 million rows in memory", ["sqlite3", ":memory:", ".read {place}/script.sql"], apt="sqlite3", files={"script.sql": """
CREATE TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT i, i * 7919 % 1000003 AS k, hex(i * 31) || ' a remark of some length, as tables have them, and a bit more of it' AS t FROM n;
CREATE INDEX ak ON a(k);
SELECT count(*), sum(a.i) FROM a JOIN a b ON a.k = b.k AND a.i < b.i;
SELECT k % 10, count(*), max(t) FROM a GROUP BY 1 ORDER BY 1;
"""}),
    Program("Redis", "loads 200,000 values of 2 KB, reads some often, saves all", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="redis-server", tool="redis-server", files={"script.sh": """
cd "$2"
redis-server --port 0 --unixsocket "$2/socket" --enable-debug-command local --save "" --dir "$2" --dbfilename dump.rdb --daemonize no >/dev/null &
server=$!
until redis-cli -s "$2/socket" ping >/dev/null 2>&1; do sleep 0.05; done
redis-cli -s "$2/socket" debug populate 200000 key 2000 >/dev/null
redis-cli -s "$2/socket" eval "local s, x = 0, 1 for i = 1, 500000 do x = (x * 1103515245 + 12345) % 2147483648
 local key = x % 200000 if i % 20 > 0 then key = key % 10000 end s = s + #redis.call('get', 'key:' .. key) end return s" 0
redis-cli -s "$2/socket" save
redis-cli -s "$2/socket" dbsize
redis-cli -s "$2/socket" shutdown nosave
wait $server
rm -f "$2/dump.rdb"
"""}),
    Program("PostgreSQL", "joins, groups and sorts 3 million rows", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="postgresql util-linux", tool="psql",
            remark="shared_buffers are shared memory", files={"script.sh": """
set -e
# The server does not run as root.
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
[ "$(id -u)" != 0 ] || chown 65534:65534 "$2"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
cd "$2"
as "$bin/initdb" -D "$2/db" -A trust -U one -E UTF8 --locale=C >/dev/null
as "$bin/postgres" -D "$2/db" -k "$2" -h "" >"$2/log" 2>&1 &
until as psql -h "$2" -U one -qAtc "select 1" postgres >/dev/null 2>&1; do sleep 0.1; done
as psql -h "$2" -U one -qAt -f "$1/script.sql" postgres
kill -INT $(head -1 "$2/db/postmaster.pid")
wait
rm -rf "$2/db"
""", "script.sql": """
SET work_mem = '1GB'; SET max_parallel_workers_per_gather = 0; SET enable_mergejoin = off; SET jit = off;
CREATE TEMP TABLE a AS SELECT i, i::bigint * 7919 % 1000003 AS k, md5(i::text) AS t FROM generate_series(1, 3000000) i;
SELECT count(*), sum(a.i) FROM a JOIN a b ON a.k = b.k AND a.i < b.i;
SELECT count(*), max(c) FROM (SELECT k, count(*) c, max(t) FROM a GROUP BY k) g;
SELECT t FROM (SELECT t, row_number() OVER (ORDER BY t) n FROM a) s WHERE n % 500000 = 0;
"""}),
    Program("QEMU", "a machine that fills and reads 800 MiB", ["sh", "-c", "qemu-system-x86_64 -accel tcg -m 1200 -display none -monitor none -serial stdio -no-reboot "
            "-drive file={place}/disk,format=raw,if=ide,snapshot=on -device isa-debug-exit,iobase=0xf4,iosize=4; test $? = 33"],
            apt="qemu-system-x86 seabios binutils", tool="qemu-system-x86_64", prepare=(boot, 800), remark="code made at run time is not paged"),
    Program("GCC", "compiles 350 functions of templates", ["g++", "-O2", "-g", "-fdebug-prefix-map={place}=.", "-fdebug-prefix-map={out}=.", "-c", "{place}/many.cpp", "-o", "{out}/many.o"], apt="g++", outputs=("many.o",),
            files={"many.cpp": "#include <map>\n#include <regex>\n#include <string>\n" + "".join(
                f"int f{n}() {{ std::map<std::string, int> m; auto g = [&](auto x) {{ m[std::to_string(x + {n})]++; }}; g({n}); g({n}.0); return std::regex_match(\"a{n}\", std::regex(\"a.*\")) + m.size(); }}\n"
                for n in range(350))}),
    Program("git", "packs 8 versions of a file of 25 MB", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="git", tool="git", prepare=(versions, 8, 25_000_000), files={"script.sh": """
set -e
cd "$2" && rm -rf r && git init -q r && cd r
git config user.name x && git config user.email x@x && git config core.compression 1
for n in 0 1 2 3 4 5 6 7; do cp "$1/version-$n" data && git add data && git commit -qm "$n" --date=2020-01-01T00:00:00Z; done
git repack -adfq --window=20 --depth=20 --threads=1
git count-objects -v | grep in-pack
cd .. && rm -rf r
"""}),
    Program("Perl", "a report of 2.6 million orders by customer", ["perl", "{place}/report.pl", "{place}/orders.csv"], apt="perl", prepare=(orders, 2_600_000), files={"report.pl": """
my (%of, %sold);
while (<>) { chomp; my ($n, $who, $what, $many, $cents, $day) = split /,/; push @{$of{$who}}, "$day $what $many"; $sold{$what} += $many * $cents }
my ($s, $most) = (0, 0);
for (sort keys %of) { for my $order (@{$of{$_}}) { $s = ($s * 31 + length $order) % 1000003 } $most = @{$of{$_}} if @{$of{$_}} > $most }
print scalar(keys %of), " $most $s $_ $sold{$_}\\n" for (sort { $sold{$b} <=> $sold{$a} || $a cmp $b } keys %sold)[0 .. 9];
"""}),
    Program("PHP", "an array of 8 million, sorted by key", ["php", "-d", "memory_limit=-1", "-r", "$a = []; for ($i = 0; $i < 8000000; $i++) $a[($i * 7919) % 8000009] = $i; ksort($a); $s = 0; foreach ($a as $k => $v) $s = ($s * 31 + $k + $v) % 1000003; echo count($a), ' ', $s, PHP_EOL;"],
            apt="php-cli", version=("-v",)),
    Program("Ruby", "4 million strings, sorted and grouped", ["ruby", "-e", "a = (1..4_000_000).map { |i| (i * 2654435761 % 4294967296).to_s(16) }; a.sort!; g = a.group_by { |s| s[0, 3] }; puts a.length, g.length, a[1000]"], apt="ruby"),
    Program("Lua", "groups 1.2 million orders by customer", ["lua5.4", "{place}/group.lua", "{place}/orders.csv"], apt="lua5.4", version=("-v",), prepare=(orders, 1_200_000), files={"group.lua": """
local all, of = {}, {}
for line in io.lines(arg[1]) do
  local number, who, what, many, cents = line:match("(%d+),(%d+),([^,]+),(%d+),(%d+)")
  local order = {who = who, what = what, cents = many * cents}
  all[#all + 1] = order
  local mine = of[who] or {total = 0, who = who}
  of[who], mine.total, mine[#mine + 1] = mine, mine.total + order.cents, order
end
local list = {} for _, mine in pairs(of) do list[#list + 1] = mine end
table.sort(list, function(a, b) return a.total > b.total or a.total == b.total and a.who < b.who end)
local s = 0 for _, order in ipairs(all) do s = (s * 31 + order.cents) % 1000003 end
print(#all, #list, s) for i = 1, 5 do print(list[i].who, list[i].total, list[i][1].what) end
"""}),
    Program("R", "orders, aggregates and merges data frames of 2.5 million", ["Rscript", "{place}/script.R"], apt="r-base-core", files={"script.R": """
set.seed(1); n <- 2.5e6
d <- data.frame(k = sample(2e5, n, TRUE), v = runif(n), w = runif(n))
o <- d[order(d$v), ]; a <- aggregate(v ~ k, o, mean); m <- merge(d[1:500000, ], a, by = 'k')
cat(nrow(m), format(sum(m$v.y), digits = 12), format(o$w[1000], digits = 12), '\\n')
"""}),
    Program("GNU Octave", "multiplies and solves matrices of 3,150 rows", ["octave-cli", "-q", "--no-init-file", "{place}/script.m"], apt="octave", env=ONE_THREAD, files={"script.m": """
rand('seed', 1); n = 3150; a = reshape(mod((1:n*n) * 7919, 10007), n, n) / 10007 + n * eye(n);
b = a * a'; x = b \\ ones(n, 1); printf('%.6f %.6f\\n', sum(b(:)) / 1e9, norm(b * x - 1) < 1e-6);
"""}),
    Program("Java", "a HashMap of 4 million objects (G1)", ["java", "-Xmx1g", "-XX:+UseG1GC", "{place}/Main.java"], apt="default-jdk-headless", files={"Main.java": """
import java.util.*;
public class Main { public static void main(String[] a) { Map<Long, String> m = new HashMap<>();
 for (long i = 0; i < 4_000_000; i++) m.put(i * 7919 % 4_000_037, "value " + i);
 long s = 0; for (var e : m.entrySet()) s = (s * 31 + e.getKey() + e.getValue().length()) % 1000003; System.out.println(m.size() + " " + s); } }
"""}),
    Program("Node.js", "parses 90 MB of JSON, groups it, writes it again", ["node", "--max-old-space-size=4096", "{place}/group.js", "{place}/documents.json"], apt="nodejs", prepare=(documents, 600_000), files={"group.js": """
const all = JSON.parse(require("fs").readFileSync(process.argv[2], "utf8")), of = new Map();
for (const one of all) { const mine = of.get(one.user); if (mine) mine.push(one); else of.set(one.user, [one]); }
const best = [...of].map(([user, mine]) => ({user, count: mine.length, score: mine.reduce((s, one) => s + one.score, 0)})).sort((a, b) => b.score - a.score || (a.user < b.user ? -1 : 1));
for (const one of all) one.words = one.text.split(" ").length;
const text = JSON.stringify(all.filter(one => one.score > 20)), hash = require("crypto").createHash("sha256").update(text).digest("hex");
console.log(all.length, of.size, best[0], text.length, hash);
"""}),
    Program("SWI-Prolog", "asserts and queries 3 million facts", ["swipl", "-g", "numlist(1,3000000,L), forall(member(X,L), (Y is X*7919 mod 3000017, assertz(f(Y,X)))), aggregate_all(count, (f(Y,X), Y mod 7 =:= 0, X > 10), N), writeln(N)", "-t", "halt"], apt="swi-prolog-nox"),
    Program("Erlang", "an ets table and a map of 800,000", ["erl", "-noshell", "-eval", "T = ets:new(t, [set]), [ets:insert(T, {I * 7919 rem 800011, I, integer_to_list(I)}) || I <- lists:seq(1, 800000)], M = maps:from_list([{K, V} || {K, V, _} <- ets:tab2list(T)]), io:format(\"~p ~p~n\", [maps:size(M), lists:sum(maps:values(M)) rem 1000003]), halt()."], apt="erlang-base",
            version=("-noshell", "-eval", 'io:format("~s~n",[erlang:system_info(otp_release)]), halt().')),
    Program("OCaml", "a Map and a Hashtbl of 1.7 million", ["{place}/p"], apt="ocaml-nox", tool="ocamlopt", prepare=(built, "ocamlopt", "-o", "p", "p.ml"), files={"p.ml": """
module M = Map.Make(Int)
let () = let m = ref M.empty and h = Hashtbl.create 10 in
 for i = 1 to 1_700_000 do let k = i * 7919 mod 1_700_021 in m := M.add k (string_of_int i) !m; Hashtbl.replace h k i done;
 Printf.printf "%d %d %d\\n" (M.cardinal !m) (Hashtbl.length h) (M.fold (fun k v s -> (s * 31 + k + String.length v) mod 1000003) !m 0)
"""}),
    Program("Go", "sorts and groups 3 million orders", ["{place}/p", "{place}/orders.csv"], apt="golang-go", tool="go", prepare=(ordered, 3_000_000, "go", "build", "-o", "p", "main.go"), version=("version",), files={"main.go": """
package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
)

type order struct {
	number, many, cents int
	who, what, day      string
}

func main() {
	file, _ := os.Open(os.Args[1])
	var all []order
	total := map[string]int{}
	for text := bufio.NewScanner(file); text.Scan(); {
		cells := strings.Split(text.Text(), ",")
		one := order{who: cells[1], what: cells[2], day: cells[5]}
		one.number, _ = strconv.Atoi(cells[0])
		one.many, _ = strconv.Atoi(cells[3])
		one.cents, _ = strconv.Atoi(cells[4])
		all = append(all, one)
		total[one.who] += one.many * one.cents
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i].many*all[i].cents, all[j].many*all[j].cents
		return a > b || a == b && all[i].number < all[j].number
	})
	sum, most := 0, ""
	for _, one := range all {
		sum = (sum*31 + one.number + len(one.what)) % 1000003
	}
	for who := range total {
		if most == "" || total[who] > total[most] || total[who] == total[most] && who < most {
			most = who
		}
	}
	fmt.Println(len(all), len(total), sum, most, total[most], all[0], all[1000])
}
"""}),
    Program("fzf", "Go: ranks 3 million lines", ["bash", "-o", "pipefail", "-c", "fzf --filter 7a3f < {place}/text | sha256sum"], apt="fzf", tool="fzf", prepare=(lines, "text", 3_000_000)),
    Program("BusyBox", "static: sorts the logs of four servers by time", ["busybox", "sort", *(f"{{place}}/{n}.log" for n in range(4)), "-o", "{out}/sorted"], apt="busybox-static",
            prepare=(logs, 4, 500_000), outputs=("sorted",), env={"LC_ALL": "C"}, version=()),
    Program("musl", "C, for musl's loader: a radix sort of 24 million numbers", ["{place}/p"], apt="musl-tools", tool="/lib/ld-musl-x86_64.so.1", version=(),
            prepare=(built, "musl-gcc", "-O2", "p.c", "-o", "p"), files={"p.c": """
#include <stdio.h>
#include <stdlib.h>
typedef unsigned long number;
int main(void) { size_t n = 24000000, i; number *from = malloc(n * 8), *to = malloc(n * 8), *swap, x = 1, s = 0;
 for (i = 0; i < n; i++) from[i] = x = x * 6364136223846793005UL + 1442695040888963407UL;
 for (int shift = 0; shift < 64; shift += 8) { size_t at[257] = {0};
  for (i = 0; i < n; i++) at[(from[i] >> shift & 255) + 1]++;
  for (i = 1; i < 257; i++) at[i] += at[i - 1];
  for (i = 0; i < n; i++) to[at[from[i] >> shift & 255]++] = from[i];
  swap = from, from = to, to = swap; }
 for (i = 1; i < n; i++) s = s * 31 + from[i] + (from[i] < from[i - 1]); printf("%zu %lu\\n", n, s); }
"""}),
    Program("FFmpeg", "encodes 5 s of 1440p with x264", ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=2560x1440:rate=25:duration=5", "-c:v", "libx264", "-preset", "medium", "-threads", "2", "-f", "framemd5", "-"], apt="ffmpeg", version=("-version",)),
    Program("samtools", "sorts 1.2 million alignments", ["bash", "-o", "pipefail", "-c", "samtools sort -m 1G -O sam --no-PG {place}/reads.sam 2>/dev/null | sha256sum"], apt="samtools", tool="samtools", prepare=(alignments, 2_000_000, 1_200_000)),
    Program("minimap2", "maps 300,000 reads to a genome of 40 million bases", ["bash", "-o", "pipefail", "-c", "minimap2 -t2 -a {place}/genome.fa {place}/reads.fq 2>/dev/null | sed '/^@PG/d' | sha256sum"], apt="minimap2", tool="minimap2", prepare=(reads, 40_000_000, 300_000)),
    Program("BWA", "indexes a genome of 31 million bases", ["bash", "-o", "pipefail", "-c", "cp {place}/genome.fa {out}/g.fa && bwa index -a is {out}/g.fa 2>/dev/null && sha256sum < {out}/g.fa.sa"], apt="bwa", tool="bwa", prepare=(genome, 31_000_000), version=()),
    Program("SPAdes", "assembles a genome of 700,000 bases", ["bash", "-o", "pipefail", "-c", "spades.py --only-assembler -k 33 -t 2 -m 8 -s {place}/reads.fq -o {out}/a >/dev/null && sha256sum < {out}/a/contigs.fasta"], apt="spades", tool="spades.py", prepare=(reads, 700_000, 85_000)),
    Program("Rust compiler", "compiles 900 generic functions, for a debugger", ["rustc", "-g", "-C", "codegen-units=1", "--remap-path-prefix={place}=.", "--remap-path-prefix={out}=.", "--crate-type", "lib", "{place}/many.rs", "-o", "{out}/many.rlib"], apt="rustc", outputs=("many.rlib",),
            files={"many.rs": "use std::collections::*;\n" + "".join(
                f"pub fn f{n}(x: &[u{8 << n % 4}]) -> usize {{ let mut m = BTreeMap::new(); for (i, k) in x.iter().enumerate() {{ m.entry(*k as u64 + {n}).or_insert_with(Vec::new).push(i); }} m.values().map(|v| v.len()).sum() }}\n"
                for n in range(900))}),
    Program("PyPy", "dictionaries of a million objects", ["pypy3", "-c", "d = {i * 7919 % 1000003: (i, str(i)) for i in range(1000000)}; l = sorted(d.items(), key=lambda e: e[1][1]); print(len(d), l[1000], sum(k * len(v[1]) for k, v in l) % 1000003)"], apt="pypy3"),
    Program("LuaJIT", "a table of 5 million strings, sorted", ["luajit", "-e", "local t = {} for i = 1, 5000000 do t[i] = string.format('%08x', i * 7919 % 4294967296) end table.sort(t) print(#t, t[1], t[#t])"], apt="luajit", version=("-v",)),
    Program("memcached", "sets 250,000 values of 2 KB, gets 100,000", ["/usr/bin/python3", "{place}/client.py", "{out}"], apt="memcached", tool="memcached", version=("-V",), files={"client.py": """
import os, socket, subprocess, sys, time
path, count = sys.argv[1] + "/socket", 250000
user = ["-u", "root"] if os.geteuid() == 0 else []
server = subprocess.Popen(["memcached", "-s", path, "-m", "1024", "-t", "2", *user])
link = socket.socket(socket.AF_UNIX)
while link.connect_ex(path): time.sleep(0.02)
answers = link.makefile("rb")
value = lambda n: (b"value %d/" % n * 256)[:2048]
for n in range(0, count, 50): link.sendall(b"".join(b"set k%d 0 0 2048 noreply\\r\\n%s\\r\\n" % (m, value(m)) for m in range(n, n + 50)))
bad = 0
for n in range(0, 100000, 10):
    asked = [m * 7919 % (count if m % 10 == 0 else count // 10) for m in range(n, n + 10)]
    link.sendall(b"get " + b" ".join(b"k%d" % m for m in asked) + b"\\r\\n")
    for m in asked: answers.readline(); bad += answers.readline().strip() != value(m)
    bad += answers.readline() != b"END\\r\\n"
print("wrong values:", bad)
server.terminate(); server.wait(); os.remove(path)
"""}),
    Program("C++ std::map", "10 million nodes, in order of their making", ["{place}/p"], apt="g++", tool="g++", prepare=(built, "g++", "-O2", "-o", "p", "p.cpp"), files={"p.cpp": """
#include <cstdio>
#include <map>
int main() { std::map<long, long> m; for (long i = 0; i < 10000000; i++) m.emplace_hint(m.end(), i * 3, i);
 long s = 0; for (int pass = 0; pass < 5; pass++) for (auto &e : m) s = (s * 31 + e.first + e.second) % 1000003; std::printf("%zu %ld\\n", m.size(), s); }
"""}),
    Program("FFTW", "a transform of 2^25 complex numbers", ["{place}/p"], apt="libfftw3-dev gcc pkg-config", tool="pkg-config", version=("--modversion", "fftw3"), prepare=(built, "gcc", "-O2", "-o", "p", "p.c", "-lfftw3", "-lm"), files={"p.c": """
#include <fftw3.h>
#include <stdio.h>
int main(void) { long n = 1 << 25; fftw_complex *a = fftw_alloc_complex(n); fftw_plan p = fftw_plan_dft_1d(n, a, a, FFTW_FORWARD, FFTW_ESTIMATE);
 for (long i = 0; i < n; i++) a[i][0] = i * 7919 % 10007, a[i][1] = 0;
 fftw_execute(p); double s = 0; for (long i = 0; i < n; i++) s += a[i][0] * a[i][0] + a[i][1] * a[i][1]; printf("%.9e\\n", s / n); }
"""}),
    Program("LAMMPS", "moves 864,000 atoms", ["lmp", "-in", "{place}/in.melt", "-log", "none", "-screen", "none", "-nocite"], apt="lammps", version=("-h",), outputs=("end",), files={"in.melt": """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 60 0 60 0 60
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
run 10
write_data end nocoeff
"""}),
    Program("Velvet", "assembles a genome of 680,000 bases", ["bash", "-o", "pipefail", "-c", "velveth {out}/v 31 -short -fastq {place}/reads.fq >/dev/null && velvetg {out}/v -exp_cov auto >/dev/null && sha256sum < {out}/v/contigs.fa"],
            apt="velvet", tool="velveth", prepare=(reads, 680_000, 136_000), version=()),
    Program("MEGAHIT", "assembles a genome of 1.9 million bases", ["bash", "-o", "pipefail", "-c", "megahit -t 2 --k-list 31 -r {place}/reads.fq -o {out}/a >/dev/null 2>&1 && python3 {place}/contigs.py {out}/a/final.contigs.fa"],
            apt="megahit", tool="megahit", prepare=(reads, 1_900_000, 380_000), files={"contigs.py": """
# The order of the contigs, and the strand of each, depend on which thread is first.
import sys
with open(sys.argv[1]) as file:
    contigs = ["".join(part.splitlines()[1:]) for part in file.read().split(">")[1:]]
other = str.maketrans("ACGT", "TGCA")
print("\\n".join(sorted(min(contig, contig.translate(other)[::-1]) for contig in contigs)))
"""}),
    Program("Open MPI", "two ranks sort 240 MB each", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "{place}/p"], apt="openmpi-bin libopenmpi-dev", prepare=(built, "mpicc", "-O2", "p.c", "-o", "p"), files={"p.c": """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int less(const void *a, const void *b) { long x = *(long *)a, y = *(long *)b; return (x > y) - (x < y); }
int main(int c, char **v) { MPI_Init(&c, &v); int r; MPI_Comm_rank(MPI_COMM_WORLD, &r); long n = 30000000, *a = malloc(n * 8), s = 0, t;
 unsigned long x = r + 1; for (long i = 0; i < n; i++) { x = x * 6364136223846793005UL + 1442695040888963407UL; a[i] = x >> 20; }
 qsort(a, n, 8, less); for (long i = 0; i < n; i += 1000) s ^= a[i] * (i + 1);
 MPI_Reduce(&s, &t, 1, MPI_LONG, MPI_BXOR, 0, MPI_COMM_WORLD); if (!r) printf("%ld\\n", t); MPI_Finalize(); }
"""}),
    python("NumPy", "sorts and indexes arrays of 400 MB", "numpy", """
import numpy as np
a = (np.arange(50_000_000, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(4294967291)
b = np.sort(a); i = (a[:20_000] % np.uint64(len(a))).astype(np.int64)
print(b[::10_000_000], int(b[i].sum() % 1000003))
"""),
    python("pandas", "merges, groups and sorts 5 million rows", "pandas", """
import numpy as np, pandas as pd
r = np.random.default_rng(1); n = 5_000_000
d = pd.DataFrame({"k": r.integers(0, 200_000, n), "v": r.random(n), "w": r.integers(0, 100, n)})
g = d.groupby("k").agg(m=("v", "mean"), s=("w", "sum")).reset_index()
m = d.merge(g, on="k").sort_values(["s", "v"])
print(len(m), round(float(m["m"].sum()), 4), m.iloc[1000]["k"])
"""),
    python("Polars", "joins, groups and sorts 7 million rows", "polars", """
import polars as pl, numpy as np
r = np.random.default_rng(1); n = 7_000_000
d = pl.DataFrame({"k": r.integers(0, 300_000, n), "v": r.random(n), "w": r.integers(0, 100, n)})
g = d.group_by("k").agg(pl.col("v").mean().alias("m"), pl.col("w").sum().alias("s"))
m = d.join(g, on="k").sort(["s", "v", "k", "w"])
print(m.height, round(m["m"].sum(), 4), m["k"][1000])
""", "its threads' own arenas (jemalloc) are paged"),
    python("DuckDB", "groups, joins, ranks 8 million rows in memory", "duckdb", """
import duckdb
c = duckdb.connect(config={"threads": 2})
c.execute("create table a as select i, i * 7919 % 1000003 as k, hash(i)::varchar as t from range(8000000) r(i)")
print(c.execute("select count(*), sum(n) from (select k, count(*) n, max(t) m from a group by k)").fetchall())
print(c.execute("select count(*) from a join (select k, min(i) f from a group by k) b using (k) where a.i > b.f").fetchall())
print(c.execute("select max(r) from (select row_number() over (partition by k % 100 order by t) r from a)").fetchall())
"""),
    python("SciPy", "factors a sparse matrix of 250,000 rows", "scipy", """
import numpy as np, scipy.sparse as s, scipy.sparse.linalg as l
n = 500; e = np.ones(n); t = s.diags([-e, 4 * e, -e], [-1, 0, 1], shape=(n, n)); i = s.identity(n)
a = (s.kron(i, t) + s.kron(s.diags([-e, -e], [-1, 1], shape=(n, n)), i)).tocsc()
x = l.splu(a).solve(np.ones(n * n)); print(round(float(x.sum()), 3))
"""),
    python("scikit-learn", "trains boosted trees and a forest on 800,000 rows", "scikit-learn", """
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
r = np.random.default_rng(1); x = r.random((800_000, 20)); y = x[:, 0] * 3 + np.sin(x[:, 1] * 9) + r.random(800_000) * 0.1
a = HistGradientBoostingRegressor(max_iter=5, random_state=1).fit(x, y); b = RandomForestRegressor(4, max_depth=10, random_state=1, n_jobs=2).fit(x[:50_000], y[:50_000])
print(round(float(a.score(x, y)), 6), round(float(b.score(x[-50_000:], y[-50_000:])), 6))
"""),
    python("LightGBM", "trains on 1.5 million rows", "lightgbm", """
import numpy as np, lightgbm as l
r = np.random.default_rng(1); x = r.random((1_500_000, 20), dtype=np.float32); y = x[:, 0] * 3 + np.sin(x[:, 1] * 9)
m = l.train({"num_threads": 2, "deterministic": True, "verbose": -1, "seed": 1}, l.Dataset(x, y), 15); print(round(float(m.predict(x[:1000]).sum()), 5))
"""),
    python("XGBoost", "trains on 2 million rows", "xgboost-cpu", """
import numpy as np, xgboost as g
r = np.random.default_rng(1); x = r.random((2_000_000, 20), dtype=np.float32); y = x[:, 0] * 3 + np.sin(x[:, 1] * 9)
m = g.train({"nthread": 2, "tree_method": "hist", "seed": 1}, g.DMatrix(x, y), 8); print(round(float(m.predict(g.DMatrix(x[:1000])).sum()), 4))
"""),
    Program("PyTorch", "trains a network of 48 million weights", ["/usr/bin/python3", "{place}/script.py"], apt="python3-torch",
            version=("-c", "import torch; print(torch.__version__)"), files={"script.py": """
import torch
torch.manual_seed(1); torch.set_num_threads(2)
m = torch.nn.Sequential(*[torch.nn.Linear(2000, 2000) for _ in range(12)]); o = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)
x = torch.randn(16, 2000)
for _ in range(6): o.zero_grad(); l = (m(x) - x).pow(2).mean(); l.backward(); o.step()
print(round(float(l), 5))
"""}),
    python("Faiss", "indexes and searches 600,000 vectors", "faiss-cpu", """
import numpy as np, faiss
faiss.omp_set_num_threads(2); r = np.random.default_rng(1); x = r.random((600_000, 128), dtype=np.float32)
i = faiss.IndexIVFFlat(faiss.IndexFlatL2(128), 128, 256); i.cp.niter = 5; i.train(x[:20_000]); i.add(x); i.nprobe = 8
d, n = i.search(x[:2000], 10); print(int(n.sum()), int((n[:, 0] == np.arange(2000)).sum()))
"""),
    python("igraph", "PageRank, cores and BFS of a million vertices", "igraph", """
import igraph, random
random.seed(1); g = igraph.Graph.Barabasi(1_000_000, 5)
print(g.ecount(), round(max(g.pagerank()), 9), max(g.coreness()), len(g.bfs(0)[0]))
"""),
    python("NetworkX", "a graph of 230,000 dictionaries, its components and cores", "networkx", """
import networkx as nx
g = nx.gnm_random_graph(230_000, 920_000, seed=1); print(nx.number_connected_components(g), max(nx.core_number(g).values()))
"""),
    python("Dask", "products of an array of 400 MB, on threads", "dask numpy", """
import dask, dask.array as da
dask.config.set(scheduler="threads", num_workers=2)
a = (da.arange(50_000_000, chunks=5_000_000) * 7919 % 1000003).astype("f8"); b = a.reshape(25000, 2000).persist()
print(round(float((b @ b.T[:, :50]).sum().compute()), 1), round(float(b.std().compute()), 6))
"""),
    python("PyArrow", "sorts and groups a table of 8 million rows", "pyarrow numpy", """
import numpy as np, pyarrow as pa
r = np.random.default_rng(1); n = 8_000_000
t = pa.table({"k": r.integers(0, 100_000, n), "v": r.random(n), "w": r.integers(0, 1 << 40, n)})
s = t.sort_by([("w", "ascending"), ("v", "ascending")]); g = s.group_by("k").aggregate([("w", "sum")]); print(s.num_rows, g.num_rows, s["w"][1000])
"""),
    python("Python itself", "dictionaries and lists of 1.2 million objects", "", """
d = {i * 7919 % 1_200_007: (i, str(i)) for i in range(1_200_000)}; l = sorted(d.items(), key=lambda e: e[1][1])
print(len(d), l[1000], sum(k * len(v[1]) for k, v in l) % 1000003)
"""),
]

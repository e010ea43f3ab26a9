"""Real programs for the page "works with": how each is found, fed and run.

What a program writes to standard output is compared between runs, and so are the files that are named.
`prepare` is a function and its arguments, after the directory: it makes inputs, or builds the program.
Sizes are such that a program takes a few seconds natively, so that the page is made in half an hour.
"""

import random
import subprocess

from dataclasses import dataclass, field


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


def lines(place, name, count, width=48):
    """Makes a file of pseudo-random lines of hexadecimal digits."""
    source = random.Random(7)
    with open(place / name, "w", encoding="ascii") as file:
        for _ in range(count // 1000):
            block = source.randbytes(width // 2 * 1000).hex()
            file.write("\n".join(block[at : at + width] for at in range(0, len(block), width)) + "\n")


def genome(place, bases):
    """Makes a random genome in FASTA: its bases."""
    whole = "".join(random.Random(11).choices("ACGT", k=bases))
    with open(place / "genome.fa", "w", encoding="ascii") as file:
        file.write(">one\n" + "".join(whole[at : at + 100] + "\n" for at in range(0, bases, 100)))
    return whole


def reads(place, bases, count):
    """Makes a genome, and reads of it: as unsorted alignments in SAM, and in FASTQ."""
    whole, source = genome(place, bases), random.Random(13)
    with open(place / "reads.sam", "w", encoding="ascii") as sam, open(place / "reads.fq", "w", encoding="ascii") as fastq:
        sam.write(f"@SQ\tSN:one\tLN:{len(whole)}\n")
        for number in range(count):
            at = source.randrange(len(whole) - 150)
            part = whole[at : at + 150]
            sam.write(f"r{number}\t0\tone\t{at + 1}\t60\t150M\t*\t0\t0\t{part}\t{'I' * 150}\n")
            fastq.write(f"@r{number}\n{part}\n+\n{'I' * 150}\n")


def built(place, *words):
    """Builds the program from its files."""
    subprocess.run(words, cwd=place, check=True, capture_output=True)


BOOT = """
.code16
.globl _start
_start: cli
 cld
 xorw %ax, %ax
 movw %ax, %ds
 inb $0x92, %al
 orb $2, %al
 outb %al, $0x92
 lgdt gdtr
 movl %cr0, %eax
 orl $1, %eax
 movl %eax, %cr0
 ljmp $8, $protected
.code32
protected: movw $16, %ax
 movw %ax, %ds
 movw %ax, %es
 movl $0x1000000, %edi
 movl $(MIB * 0x40000), %ecx
 movl $12345, %eax
fill: imull $1664525, %eax
 addl $1013904223, %eax
 stosl
 loop fill
 movl $3, %ebp
 xorl %ebx, %ebx
pass: movl $0x1000000, %esi
 movl $(MIB * 0x40000), %ecx
sum: lodsl
 imull $31, %ebx
 addl %eax, %ebx
 loop sum
 decl %ebp
 jnz pass
 movl $8, %ecx
 movw $0x3f8, %dx
digit: roll $4, %ebx
 movb %bl, %al
 andb $15, %al
 addb $97, %al
 outb %al, %dx
 loop digit
 movb $10, %al
 outb %al, %dx
 movb $16, %al
 outb %al, $0xf4
end: hlt
 jmp end
gdt: .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdtr: .word 23
 .long gdt
.org 510
.word 0xaa55
"""
"""A boot sector that fills memory, reads it three times, writes the sum to the serial port, and ends the machine."""


def boot(place, mib):
    """Makes a disk that begins with that boot sector."""
    (place / "boot.s").write_text(BOOT.replace("MIB", str(mib)), encoding="ascii")
    subprocess.run(["as", "--32", "-o", "boot.o", "boot.s"], cwd=place, check=True)
    link = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "-o", "disk", "boot.o"]
    subprocess.run(link, cwd=place, check=True)


def python(name, does, pip, script, remark=""):
    """A program in Python, with a package."""
    return Program(name, does, ["python3", "{place}/script.py", "{place}"], pip=pip, files={"script.py": script}, remark=remark)


ONE_THREAD = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2"}

PROGRAMS = [
    Program("GNU sort", "sorts a text of 60 MB", ["sort", "-S", "2G", "--parallel=2", "{place}/text", "-o", "{out}/sorted"],
            apt="coreutils", prepare=(lines, "text", 1_200_000), outputs=("sorted",), env={"LC_ALL": "C"}),
    Program("zstd", "compresses, level 8, long distances", ["zstd", "-q", "-8", "--long=27", "-T1", "-f", "{place}/text", "-o", "{out}/packed"],
            apt="zstd", prepare=(lines, "text", 1_000_000), outputs=("packed",)),
    Program("SQLite", "joins tables of 1.5 million rows in memory", ["sqlite3", ":memory:", ".read {place}/script.sql"], apt="sqlite3", files={"script.sql": """
CREATE TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500000) SELECT i, i * 7919 % 500009 AS k, hex(i * 31) AS t FROM n;
CREATE INDEX ak ON a(k);
SELECT count(*), sum(a.i) FROM a JOIN a b ON a.k = b.k AND a.i < b.i;
SELECT k % 10, count(*), max(t) FROM a GROUP BY 1 ORDER BY 1;
"""}),
    Program("Redis", "loads 300,000 values, saves them", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="redis-server", tool="redis-server", files={"script.sh": """
cd "$2"
redis-server --port 0 --unixsocket "$2/socket" --enable-debug-command local --save "" --dir "$2" --dbfilename dump.rdb --daemonize no >/dev/null &
server=$!
until redis-cli -s "$2/socket" ping >/dev/null 2>&1; do sleep 0.05; done
redis-cli -s "$2/socket" debug populate 300000 key 200 >/dev/null
redis-cli -s "$2/socket" save
redis-cli -s "$2/socket" dbsize
redis-cli -s "$2/socket" shutdown nosave
wait $server
rm -f "$2/dump.rdb"
"""}),
    Program("PostgreSQL", "joins, groups and sorts 300,000 rows", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="postgresql util-linux", tool="psql",
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
CREATE TEMP TABLE a AS SELECT i, i::bigint * 7919 % 100003 AS k, md5(i::text) AS t FROM generate_series(1, 300000) i;
SELECT count(*), sum(a.i) FROM a JOIN a b ON a.k = b.k AND a.i < b.i;
SELECT count(*), max(c) FROM (SELECT k, count(*) c, max(t) FROM a GROUP BY k) g;
SELECT t FROM (SELECT t, row_number() OVER (ORDER BY t) n FROM a) s WHERE n % 100000 = 0;
"""}),
    Program("QEMU", "a machine that fills and reads 300 MiB", ["sh", "-c", "qemu-system-x86_64 -accel tcg -m 600 -display none -monitor none -serial stdio -no-reboot "
            "-drive file={place}/disk,format=raw,if=ide,snapshot=on -device isa-debug-exit,iobase=0xf4,iosize=4; test $? = 33"],
            apt="qemu-system-x86 seabios binutils", tool="qemu-system-x86_64", prepare=(boot, 300), remark="code made at run time is not paged"),
    Program("GCC", "compiles 40 functions of templates", ["g++", "-O1", "-c", "{place}/many.cpp", "-o", "{out}/many.o"], apt="g++", outputs=("many.o",),
            files={"many.cpp": "#include <map>\n#include <regex>\n#include <string>\n" + "".join(
                f"int f{n}() {{ std::map<std::string, int> m; auto g = [&](auto x) {{ m[std::to_string(x + {n})]++; }}; g({n}); g({n}.0); return std::regex_match(\"a{n}\", std::regex(\"a.*\")) + m.size(); }}\n"
                for n in range(40))}),
    Program("git", "packs a repository of 15 MB with a large window", ["sh", "{place}/script.sh", "{place}", "{out}"], apt="git", tool="git", prepare=(lines, "text", 300_000), files={"script.sh": """
set -e
cd "$2" && rm -rf r && git init -q r && cd r
split -n l/40 "$1/text" part-
git -c user.name=x -c user.email=x@x add . && git -c user.name=x -c user.email=x@x commit -qm one --date=2020-01-01T00:00:00Z
git repack -adfq --window=40 --depth=40 --threads=1
git count-objects -v | grep in-pack
cd .. && rm -rf r
"""}),
    Program("Perl", "a hash of 250,000 strings, sorted", ["perl", "-e", 'my %h; $h{sprintf("%08x", $_ * 2654435761 % 4294967296)} = "v$_" for 1..250000; my $s = 0; for (sort keys %h) { $s = ($s * 31 + length($h{$_})) % 1000003 } print scalar(keys %h), " $s\\n"'], apt="perl"),
    Program("PHP", "an array of 500,000, sorted by key", ["php", "-d", "memory_limit=-1", "-r", "$a = []; for ($i = 0; $i < 500000; $i++) $a[($i * 7919) % 500009] = $i; ksort($a); $s = 0; foreach ($a as $k => $v) $s = ($s * 31 + $k + $v) % 1000003; echo count($a), ' ', $s, PHP_EOL;"],
            apt="php-cli", version=("-v",)),
    Program("Ruby", "400,000 strings, sorted and grouped", ["ruby", "-e", "a = (1..400_000).map { |i| (i * 2654435761 % 4294967296).to_s(16) }; a.sort!; g = a.group_by { |s| s[0, 3] }; puts a.length, g.length, a[1000]"], apt="ruby"),
    Program("Lua", "a table of 400,000 strings", ["lua5.4", "-e", "local t = {} for i = 1, 400000 do t[i] = string.format('%08x', i * 2654435761 % 4294967296) end table.sort(t) print(#t, t[1], t[#t])"], apt="lua5.4", version=("-v",)),
    Program("R", "orders, aggregates and merges data frames", ["Rscript", "{place}/script.R"], apt="r-base-core", files={"script.R": """
set.seed(1); n <- 1e6
d <- data.frame(k = sample(1e5, n, TRUE), v = runif(n), w = runif(n))
o <- d[order(d$v), ]; a <- aggregate(v ~ k, o, mean); m <- merge(d[1:200000, ], a, by = 'k')
cat(nrow(m), format(sum(m$v.y), digits = 12), format(o$w[1000], digits = 12), '\\n')
"""}),
    Program("GNU Octave", "multiplies and solves matrices", ["octave-cli", "-q", "--no-init-file", "{place}/script.m"], apt="octave", env=ONE_THREAD, files={"script.m": """
rand('seed', 1); n = 1500; a = reshape(mod((1:n*n) * 7919, 10007), n, n) / 10007 + n * eye(n);
b = a * a'; x = b \\ ones(n, 1); printf('%.6f %.6f\\n', sum(b(:)) / 1e9, norm(b * x - 1) < 1e-6);
"""}),
    Program("Java", "a HashMap of 600,000 objects (G1)", ["java", "-Xmx300m", "-XX:+UseG1GC", "{place}/Main.java"], apt="default-jdk-headless", files={"Main.java": """
import java.util.*;
public class Main { public static void main(String[] a) { Map<Long, String> m = new HashMap<>();
 for (long i = 0; i < 600_000; i++) m.put(i * 7919 % 600_011, "value " + i);
 long s = 0; for (var e : m.entrySet()) s = (s * 31 + e.getKey() + e.getValue().length()) % 1000003; System.out.println(m.size() + " " + s); } }
"""}),
    Program("Node.js", "arrays of a million objects, sorted", ["node", "--max-old-space-size=4096", "-e", "const a = []; for (let i = 0; i < 1e6; i++) a.push({k: (i * 7919) % 1000037, v: 'v' + i}); a.sort((x, y) => x.k - y.k); let s = 0; for (const e of a) s = (s * 31 + e.k + e.v.length) % 1000003; console.log(a.length, s)"], apt="nodejs"),
    Program("SWI-Prolog", "asserts and queries 400,000 facts", ["swipl", "-g", "numlist(1,400000,L), forall(member(X,L), (Y is X*7919 mod 400009, assertz(f(Y,X)))), aggregate_all(count, (f(Y,X), Y mod 7 =:= 0, X > 10), N), writeln(N)", "-t", "halt"], apt="swi-prolog-nox"),
    Program("Erlang", "an ets table and a map of 600,000", ["erl", "-noshell", "-eval", "T = ets:new(t, [set]), [ets:insert(T, {I * 7919 rem 600011, I, integer_to_list(I)}) || I <- lists:seq(1, 600000)], M = maps:from_list([{K, V} || {K, V, _} <- ets:tab2list(T)]), io:format(\"~p ~p~n\", [maps:size(M), lists:sum(maps:values(M)) rem 1000003]), halt()."], apt="erlang-base",
            version=("-noshell", "-eval", 'io:format("~s~n",[erlang:system_info(otp_release)]), halt().')),
    Program("OCaml", "a Map and a Hashtbl of 200,000", ["{place}/p"], apt="ocaml-nox", tool="ocamlopt", prepare=(built, "ocamlopt", "-o", "p", "p.ml"), files={"p.ml": """
module M = Map.Make(Int)
let () = let m = ref M.empty and h = Hashtbl.create 10 in
 for i = 1 to 200_000 do let k = i * 7919 mod 200_003 in m := M.add k (string_of_int i) !m; Hashtbl.replace h k i done;
 Printf.printf "%d %d %d\\n" (M.cardinal !m) (Hashtbl.length h) (M.fold (fun k v s -> (s * 31 + k + String.length v) mod 1000003) !m 0)
"""}),
    Program("Go", "a map of a million", ["{place}/p"], apt="golang-go", tool="go", prepare=(built, "go", "build", "-o", "p", "main.go"), version=("version",), files={"main.go": """
package main
import "fmt"
func main() { m := map[int]string{}; for i := 0; i < 1000000; i++ { m[i*7919%1000003] = fmt.Sprint(i) }
 s := 0; for i := 0; i < 1000003; i++ { s = (s*31 + len(m[i])) % 1000003 }; fmt.Println(len(m), s) }
"""}),
    Program("fzf", "Go: ranks 300,000 lines", ["bash", "-o", "pipefail", "-c", "fzf --filter 7a3f < {place}/text | sha256sum"], apt="fzf", tool="fzf", prepare=(lines, "text", 300_000)),
    Program("BusyBox", "static: sorts 500,000 lines", ["busybox", "sort", "{place}/text", "-o", "{out}/sorted"], apt="busybox-static", prepare=(lines, "text", 500_000),
            outputs=("sorted",), env={"LC_ALL": "C"}, version=()),
    Program("musl", "C, for musl's loader: a radix sort of 8 million numbers", ["{place}/p"], apt="musl-tools", tool="/lib/ld-musl-x86_64.so.1", version=(),
            prepare=(built, "musl-gcc", "-O2", "p.c", "-o", "p"), files={"p.c": """
#include <stdio.h>
#include <stdlib.h>
typedef unsigned long number;
int main(void) { size_t n = 8000000, i; number *from = malloc(n * 8), *to = malloc(n * 8), *swap, x = 1, s = 0;
 for (i = 0; i < n; i++) from[i] = x = x * 6364136223846793005UL + 1442695040888963407UL;
 for (int shift = 0; shift < 64; shift += 8) { size_t at[257] = {0};
  for (i = 0; i < n; i++) at[(from[i] >> shift & 255) + 1]++;
  for (i = 1; i < 257; i++) at[i] += at[i - 1];
  for (i = 0; i < n; i++) to[at[from[i] >> shift & 255]++] = from[i];
  swap = from, from = to, to = swap; }
 for (i = 1; i < n; i++) s = s * 31 + from[i] + (from[i] < from[i - 1]); printf("%zu %lu\\n", n, s); }
"""}),
    Program("FFmpeg", "encodes 3 s of 1080p with x264", ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25:duration=3", "-c:v", "libx264", "-preset", "medium", "-threads", "2", "-f", "framemd5", "-"], apt="ffmpeg", version=("-version",)),
    Program("samtools", "sorts 100,000 alignments", ["bash", "-o", "pipefail", "-c", "samtools sort -m 1G -O sam --no-PG {place}/reads.sam 2>/dev/null | sha256sum"], apt="samtools", tool="samtools", prepare=(reads, 2_000_000, 100_000)),
    Program("minimap2", "maps 20,000 reads to a genome of 5 million bases", ["bash", "-o", "pipefail", "-c", "minimap2 -t2 -a {place}/genome.fa {place}/reads.fq 2>/dev/null | sed '/^@PG/d' | sha256sum"], apt="minimap2", tool="minimap2", prepare=(reads, 5_000_000, 20_000)),
    Program("BWA", "indexes a genome of 3 million bases", ["bash", "-o", "pipefail", "-c", "cp {place}/genome.fa {out}/g.fa && bwa index {out}/g.fa 2>/dev/null && sha256sum < {out}/g.fa.sa"], apt="bwa", tool="bwa", prepare=(genome, 3_000_000), version=()),
    Program("SPAdes", "assembles a genome of 50,000 bases", ["bash", "-o", "pipefail", "-c", "spades.py --only-assembler -t 2 -m 8 -s {place}/reads.fq -o {out}/a >/dev/null && sha256sum < {out}/a/contigs.fasta"], apt="spades", tool="spades.py", prepare=(reads, 50_000, 6_000)),
    Program("Rust compiler", "compiles 300 generic functions", ["rustc", "-O", "--crate-type", "lib", "{place}/many.rs", "-o", "{out}/many.rlib"], apt="rustc",
            files={"many.rs": "use std::collections::*;\n" + "".join(
                f"pub fn f{n}(x: &[u{8 << n % 4}]) -> usize {{ let mut m = BTreeMap::new(); for (i, k) in x.iter().enumerate() {{ m.entry(*k as u64 + {n}).or_insert_with(Vec::new).push(i); }} m.values().map(|v| v.len()).sum() }}\n"
                for n in range(300))}),
    Program("PyPy", "dictionaries of 150,000 objects", ["pypy3", "-c", "d = {i * 7919 % 150001: (i, str(i)) for i in range(150000)}; l = sorted(d.items(), key=lambda e: e[1][1]); print(len(d), l[1000], sum(k * len(v[1]) for k, v in l) % 1000003)"], apt="pypy3"),
    Program("LuaJIT", "a table of 200,000 strings, sorted", ["luajit", "-e", "local t = {} for i = 1, 200000 do t[i] = string.format('%08x', i * 7919 % 4294967296) end table.sort(t) print(#t, t[1], t[#t])"], apt="luajit", version=("-v",)),
    Program("memcached", "sets and gets 60,000 values", ["/usr/bin/python3", "{place}/client.py", "{out}"], apt="memcached", tool="memcached", version=("-V",), files={"client.py": """
import hashlib, os, socket, subprocess, sys, time
path = sys.argv[1] + "/socket"
user = ["-u", "root"] if os.geteuid() == 0 else []
server = subprocess.Popen(["memcached", "-s", path, "-m", "512", "-t", "2", *user])
link = socket.socket(socket.AF_UNIX)
while link.connect_ex(path): time.sleep(0.02)
answers = link.makefile("rb")
value = lambda n: hashlib.sha256(str(n).encode()).hexdigest().encode() * 32
for n in range(60000): link.sendall(b"set k%d 0 0 2048 noreply\\r\\n%s\\r\\n" % (n, value(n)))
bad = 0
for n in range(0, 60000, 2):
    link.sendall(b"get k%d\\r\\n" % (n * 7919 % 60000)); answers.readline(); bad += answers.readline().strip() != value(n * 7919 % 60000); answers.readline()
print("wrong values:", bad)
server.terminate(); server.wait(); os.remove(path)
"""}),
    Program("C++ std::map", "2 million nodes, in order of their making", ["{place}/p"], apt="g++", tool="g++", prepare=(built, "g++", "-O2", "-o", "p", "p.cpp"), files={"p.cpp": """
#include <cstdio>
#include <map>
int main() { std::map<long, long> m; for (long i = 0; i < 2000000; i++) m.emplace_hint(m.end(), i * 3, i);
 long s = 0; for (int pass = 0; pass < 5; pass++) for (auto &e : m) s = (s * 31 + e.first + e.second) % 1000003; std::printf("%zu %ld\\n", m.size(), s); }
"""}),
    Program("FFTW", "a transform of 4 million complex numbers", ["{place}/p"], apt="libfftw3-dev gcc pkg-config", tool="pkg-config", version=("--modversion", "fftw3"), prepare=(built, "gcc", "-O2", "-o", "p", "p.c", "-lfftw3", "-lm"), files={"p.c": """
#include <fftw3.h>
#include <stdio.h>
int main(void) { long n = 1 << 22; fftw_complex *a = fftw_alloc_complex(n); fftw_plan p = fftw_plan_dft_1d(n, a, a, FFTW_FORWARD, FFTW_ESTIMATE);
 for (long i = 0; i < n; i++) a[i][0] = i * 7919 % 10007, a[i][1] = 0;
 fftw_execute(p); double s = 0; for (long i = 0; i < n; i++) s += a[i][0] * a[i][0] + a[i][1] * a[i][1]; printf("%.9e\\n", s / n); }
"""}),
    Program("LAMMPS", "moves 108,000 atoms", ["lmp", "-in", "{place}/in.melt", "-log", "none", "-screen", "none", "-nocite"], apt="lammps", version=("-h",), outputs=("end",), files={"in.melt": """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 30 0 30 0 30
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
run 20
write_data end nocoeff
"""}),
    Program("Velvet", "assembles a genome of 200,000 bases", ["bash", "-o", "pipefail", "-c", "velveth {out}/v 31 -short -fastq {place}/reads.fq >/dev/null && velvetg {out}/v -exp_cov auto >/dev/null && sha256sum < {out}/v/contigs.fa"],
            apt="velvet", tool="velveth", prepare=(reads, 200_000, 40_000), version=()),
    Program("MEGAHIT", "assembles a genome of 200,000 bases", ["bash", "-o", "pipefail", "-c", "megahit -t 2 -r {place}/reads.fq -o {out}/a >/dev/null 2>&1 && sha256sum < {out}/a/final.contigs.fa"],
            apt="megahit", tool="megahit", prepare=(reads, 200_000, 40_000)),
    Program("Open MPI", "two ranks sort 100 MB each", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "{place}/p"], apt="openmpi-bin libopenmpi-dev", prepare=(built, "mpicc", "-O2", "p.c", "-o", "p"), files={"p.c": """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int less(const void *a, const void *b) { long x = *(long *)a, y = *(long *)b; return (x > y) - (x < y); }
int main(int c, char **v) { MPI_Init(&c, &v); int r; MPI_Comm_rank(MPI_COMM_WORLD, &r); long n = 12500000, *a = malloc(n * 8), s = 0, t;
 unsigned long x = r + 1; for (long i = 0; i < n; i++) { x = x * 6364136223846793005UL + 1442695040888963407UL; a[i] = x >> 20; }
 qsort(a, n, 8, less); for (long i = 0; i < n; i += 1000) s ^= a[i] * (i + 1);
 MPI_Reduce(&s, &t, 1, MPI_LONG, MPI_BXOR, 0, MPI_COMM_WORLD); if (!r) printf("%ld\\n", t); MPI_Finalize(); }
"""}),
    python("NumPy", "sorts and indexes arrays of 160 MB", "numpy", """
import numpy as np
a = (np.arange(20_000_000, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(4294967291)
b = np.sort(a); i = (a[:20_000] % np.uint64(len(a))).astype(np.int64)
print(b[::4_000_000], int(b[i].sum() % 1000003))
"""),
    python("pandas", "merges, groups and sorts 2 million rows", "pandas", """
import numpy as np, pandas as pd
r = np.random.default_rng(1); n = 2_000_000
d = pd.DataFrame({"k": r.integers(0, 200_000, n), "v": r.random(n), "w": r.integers(0, 100, n)})
g = d.groupby("k").agg(m=("v", "mean"), s=("w", "sum")).reset_index()
m = d.merge(g, on="k").sort_values(["s", "v"])
print(len(m), round(float(m["m"].sum()), 4), m.iloc[1000]["k"])
"""),
    python("Polars", "joins, groups and sorts 4 million rows", "polars", """
import polars as pl, numpy as np
r = np.random.default_rng(1); n = 4_000_000
d = pl.DataFrame({"k": r.integers(0, 300_000, n), "v": r.random(n), "w": r.integers(0, 100, n)})
g = d.group_by("k").agg(pl.col("v").mean().alias("m"), pl.col("w").sum().alias("s"))
m = d.join(g, on="k").sort(["s", "v", "k", "w"])
print(m.height, round(m["m"].sum(), 4), m["k"][1000])
""", "its threads' own arenas (jemalloc) are paged"),
    python("DuckDB", "groups, joins, ranks 3 million rows in memory", "duckdb", """
import duckdb
c = duckdb.connect(config={"threads": 2})
c.execute("create table a as select i, i * 7919 % 1000003 as k, hash(i)::varchar as t from range(3000000) r(i)")
print(c.execute("select count(*), sum(n) from (select k, count(*) n, max(t) m from a group by k)").fetchall())
print(c.execute("select count(*) from a join (select k, min(i) f from a group by k) b using (k) where a.i > b.f").fetchall())
print(c.execute("select max(r) from (select row_number() over (partition by k % 100 order by t) r from a)").fetchall())
"""),
    python("SciPy", "factors a sparse matrix of 90,000 rows", "scipy", """
import numpy as np, scipy.sparse as s, scipy.sparse.linalg as l
n = 300; e = np.ones(n); t = s.diags([-e, 4 * e, -e], [-1, 0, 1], shape=(n, n)); i = s.identity(n)
a = (s.kron(i, t) + s.kron(s.diags([-e, -e], [-1, 1], shape=(n, n)), i)).tocsc()
x = l.splu(a).solve(np.ones(n * n)); print(round(float(x.sum()), 3))
"""),
    python("scikit-learn", "trains boosted trees and a forest", "scikit-learn", """
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
r = np.random.default_rng(1); x = r.random((200_000, 20)); y = x[:, 0] * 3 + np.sin(x[:, 1] * 9) + r.random(200_000) * 0.1
a = HistGradientBoostingRegressor(max_iter=20, random_state=1).fit(x, y); b = RandomForestRegressor(10, max_depth=14, random_state=1, n_jobs=2).fit(x[:50_000], y[:50_000])
print(round(float(a.score(x, y)), 6), round(float(b.score(x, y)), 6))
"""),
    python("LightGBM", "trains on a million rows", "lightgbm", """
import numpy as np, lightgbm as l
r = np.random.default_rng(1); x = r.random((1_000_000, 20), dtype=np.float32); y = x[:, 0] * 3 + np.sin(x[:, 1] * 9)
m = l.train({"num_threads": 2, "deterministic": True, "verbose": -1, "seed": 1}, l.Dataset(x, y), 15); print(round(float(m.predict(x[:1000]).sum()), 5))
"""),
    python("XGBoost", "trains on a million rows", "xgboost-cpu", """
import numpy as np, xgboost as g
r = np.random.default_rng(1); x = r.random((1_000_000, 20), dtype=np.float32); y = x[:, 0] * 3 + np.sin(x[:, 1] * 9)
m = g.train({"nthread": 2, "tree_method": "hist", "seed": 1}, g.DMatrix(x, y), 8); print(round(float(m.predict(g.DMatrix(x[:1000])).sum()), 4))
"""),
    Program("PyTorch", "trains a network of 8 million weights", ["/usr/bin/python3", "{place}/script.py"], apt="python3-torch",
            version=("-c", "import torch; print(torch.__version__)"), files={"script.py": """
import torch
torch.manual_seed(1); torch.set_num_threads(2)
m = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(8)]); o = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)
x = torch.randn(16, 1000)
for _ in range(6): o.zero_grad(); l = (m(x) - x).pow(2).mean(); l.backward(); o.step()
print(round(float(l), 5))
"""}),
    python("Faiss", "indexes and searches 200,000 vectors", "faiss-cpu", """
import numpy as np, faiss
faiss.omp_set_num_threads(2); r = np.random.default_rng(1); x = r.random((200_000, 128), dtype=np.float32)
i = faiss.IndexIVFFlat(faiss.IndexFlatL2(128), 128, 256); i.cp.niter = 5; i.train(x[:20_000]); i.add(x); i.nprobe = 8
d, n = i.search(x[:500], 10); print(int(n.sum()), int((n[:, 0] == np.arange(500)).sum()))
"""),
    python("igraph", "PageRank, cores and BFS of 250,000 vertices", "igraph", """
import igraph, random
random.seed(1); g = igraph.Graph.Barabasi(250_000, 5)
print(g.ecount(), round(max(g.pagerank()), 9), max(g.coreness()), len(g.bfs(0)[0]))
"""),
    python("NetworkX", "a graph of dictionaries, its components and cores", "networkx", """
import networkx as nx
g = nx.gnm_random_graph(50_000, 200_000, seed=1); print(nx.number_connected_components(g), max(nx.core_number(g).values()))
"""),
    python("Dask", "a large array's products, on threads", "dask numpy", """
import dask, dask.array as da
dask.config.set(scheduler="threads", num_workers=2)
a = (da.arange(20_000_000, chunks=2_000_000) * 7919 % 1000003).astype("f8"); b = a.reshape(10000, 2000).persist()
print(round(float((b @ b.T[:, :50]).sum().compute()), 1), round(float(b.std().compute()), 6))
"""),
    python("PyArrow", "sorts and groups a table of 3 million rows", "pyarrow numpy", """
import numpy as np, pyarrow as pa
r = np.random.default_rng(1); n = 3_000_000
t = pa.table({"k": r.integers(0, 100_000, n), "v": r.random(n), "w": r.integers(0, 1 << 40, n)})
s = t.sort_by([("w", "ascending"), ("v", "ascending")]); g = s.group_by("k").aggregate([("w", "sum")]); print(s.num_rows, g.num_rows, s["w"][1000])
"""),
    python("Python itself", "dictionaries and lists of 200,000 objects", "", """
d = {i * 7919 % 200_003: (i, str(i)) for i in range(200_000)}; l = sorted(d.items(), key=lambda e: e[1][1])
print(len(d), l[1000], sum(k * len(v[1]) for k, v in l) % 1000003)
"""),
]

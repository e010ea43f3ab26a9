"""Inputs of real programs: texts, tables, genomes, a disk that boots. Each function makes the same bytes each time.

A maker of inputs takes the directory first; most make 100 MB in a second or two.
"""

import itertools
import random
import subprocess


def lines(place, name, count, width=48):
    """Makes a file of pseudo-random lines of hexadecimal digits."""
    source = random.Random(7)
    with open(place / name, "w", encoding="ascii") as file:
        for _ in range(count // 1000):
            file.write(source.randbytes(width // 2 * 1000).hex("\n", width // 2) + "\n")


def logs(place, servers, count):
    """Makes a log for each server, in order of time: the answers to requests, of which some are much more frequent."""
    source = random.Random(3)
    paths = [f"/{source.choice(('shop', 'api/v2', 'static', 'user'))}/{source.randbytes(5).hex()}/{n}" for n in range(30_000)]
    agents = [f"Mozilla/5.0 (X11; Linux x86_64; rv:{n}.0) Gecko/20100101 Firefox/{n}.0" for n in range(60, 120)]
    requests = [f"GET {path} 200 {len(path) * 997 % 90_000} {source.choice(agents)}\n" for path in paths]
    weights = list(itertools.accumulate(1 / n for n in range(1, len(requests) + 1)))
    for server in range(servers):
        clients = [f" 10.{server}.{n >> 8 & 255}.{n & 255} " for n in range(60_000)]
        with open(place / f"{server}.log", "w", encoding="ascii") as file:
            for at in range(0, count, 50_000):
                times = map("%d".__mod__, sorted(source.choices(range(1_709_251_200_000 + at * 97, 1_709_251_200_000 + (at + 50_000) * 97), k=50_000)))
                lines_of = zip(times, source.choices(clients, k=50_000), source.choices(requests, cum_weights=weights, k=50_000))
                file.write("".join(map("".join, lines_of)))


def orders(place, count):
    """Makes a table of orders as CSV: number, customer, product, quantity, cents, day, remark. A tenth of the customers order most."""
    source = random.Random(5)
    customers = [f"{n * 7919 % 200_003:06d}" for n in range(200_000)]
    weights = list(itertools.accumulate(1 / (n + 2000) for n in range(200_000)))
    products = [f",product {source.randbytes(3).hex()},{source.randrange(1, 9)},{source.randrange(99, 99_999)}," for _ in range(20_000)]
    remarks = [f",{source.randbytes(n % 12).hex()}\n" for n in range(1000)]
    with open(place / "orders.csv", "w", encoding="ascii") as file:
        for at in range(0, count, 50_000):
            many = min(50_000, count - at)
            days = [f"2024-{n * 12 // count + 1:02d}-{n * 336 // count % 28 + 1:02d}" for n in range(at, at + many)]
            rows = zip(map("%d,".__mod__, range(at, at + many)), source.choices(customers, cum_weights=weights, k=many),
                       source.choices(products, k=many), days, source.choices(remarks, k=many))
            file.write("".join(map("".join, rows)))


def documents(place, count):
    """Makes a JSON array of documents, as a service exports them."""
    source = random.Random(9)
    names = [source.randbytes(6).hex() for _ in range(5000)]
    with open(place / "documents.json", "w", encoding="ascii") as file:
        for n in range(count):
            one, two, three = source.choices(names, k=3)
            file.write(f'{"," if n else "["}{{"id":{n},"user":"{one}","tags":["{two}","{three}"],"at":{n * 37 + 1_700_000_000},'
                       f'"score":{n * 7919 % 10_007 / 100},"text":"{one} wrote to {two} of {three}"}}\n')
        file.write("]")


def versions(place, count, size):
    """Makes a text, and later versions of it: each lacks some lines of the one before, and has others."""
    source = random.Random(17)
    text = source.randbytes(size // 80 * 39).hex("\n", 39).split("\n")
    for version in range(count):
        for at in source.choices(range(len(text)), k=len(text) // 200):
            text[at] = f"line of version {version}: {source.randbytes(20).hex()}"
        (place / f"version-{version}").write_text("\n".join(text) + "\n", encoding="ascii")


BASES = bytes(b"ACGT"[n & 3] for n in range(256))
OTHER = {"A": "C", "C": "G", "G": "T", "T": "A"}


def genome(place, bases):
    """Makes a random genome in FASTA: its bases."""
    whole = random.Random(11).randbytes(bases).translate(BASES).decode("ascii")
    with open(place / "genome.fa", "w", encoding="ascii") as file:
        file.write(">one\n" + "".join(whole[at : at + 100] + "\n" for at in range(0, bases, 100)))
    return whole


def parts(whole, count):
    """Reads of a genome, each with one wrong base: where they begin, and their 150 bases."""
    source, last = random.Random(13), len(whole) - 150
    for at, wrong in zip(source.choices(range(last), k=count), source.choices(range(150), k=count)):
        part = whole[at : at + 150]
        yield at, part[:wrong] + OTHER[part[wrong]] + part[wrong + 1 :]


def reads(place, bases, count):
    """Makes a genome, and reads of it in FASTQ."""
    whole = genome(place, bases)
    with open(place / "reads.fq", "w", encoding="ascii") as file:
        file.writelines(f"@r{number}\n{part}\n+\n{'I' * 150}\n" for number, (_, part) in enumerate(parts(whole, count)))


def alignments(place, bases, count):
    """Makes unsorted alignments of such reads, in SAM."""
    whole = genome(place, bases)
    with open(place / "reads.sam", "w", encoding="ascii") as file:
        file.write(f"@SQ\tSN:one\tLN:{bases}\n")
        for number, (at, part) in enumerate(parts(whole, count)):
            file.write(f"r{number}\t0\tone\t{at + 1}\t60\t150M\t*\t0\t0\t{part}\t{'I' * 150}\n")


def built(place, *words):
    """Builds the program from its files."""
    subprocess.run(words, cwd=place, check=True, capture_output=True)


def ordered(place, count, *words):
    """Makes a table of orders, and builds the program that reads it."""
    orders(place, count)
    built(place, *words)


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

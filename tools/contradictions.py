"""Contradictions between the pages, and between the pages and the code: a part of tools/tidy.

Links and their anchors exist; the numbers of programs, rows and examples that pages name are those
of the tables; the costs in docs/programs.md allow what docs/works-with.md has measured; flags in
README.md are settings; what pages say to make can be made; ARCHITECTURE.md names what each crate
uses; each file of an experiment ships.
"""

import pathlib
import re
import unicodedata

WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
# The measured programs of each row of docs/programs.md, by how its first cell begins.
KINDS = {
    "C, C++": "GNU sort, zstd, QEMU, GCC, git, FFmpeg, samtools, minimap2, BWA, SPAdes, Rust compiler, C++ std::map, FFTW, "
    "LAMMPS, Velvet, MEGAHIT",
    "Python, numpy": "NumPy, pandas, Polars, SciPy, LightGBM, XGBoost, igraph, Python itself",
    "PyPy, PHP": "Perl, PHP, Lua, OCaml, PyPy, LuaJIT",
    "R, Octave": "R, GNU Octave, SWI-Prolog, Erlang",
    "Java": "Java",
    "Node.js": "Node.js",
    "Ruby": "Ruby",
    "Go": "Go, fzf",
    "static executables": "BusyBox, musl",
    "PostgreSQL": "PostgreSQL",
    "Redis": "Redis",
    "memcached": "memcached",
    "DuckDB": "DuckDB, SQLite",
    "MPI": "Open MPI",
}
# Both pages are of single runs, each good to this factor.
FACTOR = 2


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def plain(text):
    """The text without what is between fences, in one line for each paragraph or row."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them, and those that it has itself."""
    found, seen = set(re.findall(r'<a (?:id|name)="([^"]+)"', text)), {}
    for heading in re.findall(r"^#+ (.*)$", plain(text), flags=re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = "".join(c for c in heading if c in "-_ " or unicodedata.category(c)[0] in "LN").replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        found.add(slug if seen[slug] == 0 else f"{slug}-{seen[slug]}")
    return found


def links(pages):
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", plain(read(page)))):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            whole = (pathlib.Path(page).parent / path) if path else pathlib.Path(page)
            if not whole.exists():
                yield f"{page}: {target} is not there"
            elif anchor and whole.suffix == ".md" and anchor not in anchors(read(whole)):
                yield f"{page}: {target}: no heading is called so"


def rows(text):
    """The cells of all rows of tables."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and not set(cells[0]) <= {"-"}:
            yield cells


def measured():
    """Each program of docs/works-with.md, without its version, with its time, and whether it had ended."""
    for cells in rows(read("docs/works-with.md")):
        if len(cells) == 11 and cells[0] != "program":
            yield re.sub(r" v?[\d.]+.*$", "", cells[0]), float(cells[6].strip("~> ")), not cells[6].startswith(">")


def number(word):
    return WORDS.index(word.lower()) if word.lower() in WORDS else int(word)


def numbers():
    programs = len(list(measured()))
    examples = len(re.findall(r"^\[.*\]\(gallery/", read("examples/README.md"), flags=re.M))
    any_number = rf"(\d+|{'|'.join(WORDS)})"
    for page, what, count in (
        ("docs/programs.md", rf"works-with\.md\) has {any_number} programs", programs),
        ("docs/works-with.md", rf"in \d+ of {any_number} rows", programs),
        ("examples/README.md", rf"^{any_number} programs with less memory", examples),
        ("README.md", rf"\[{any_number} more examples\]", examples),
        ("CONTRIBUTING.md", rf"the {any_number} examples of", examples),
    ):
        text = read(page) if "^" in what else " ".join(read(page).split())
        found = re.findall(what, text, flags=re.M | re.I)
        if not found:
            yield f"{page}: no text is '{what}' (tools/contradictions.py looks for that)"
        yield from (f"{page}: {word}, and {count} are there" for word in found if number(word) != count)


def ranges(cost):
    """The factors that a text on costs allows: from, to."""
    every = re.findall(r"(\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))?( and more)?", cost)
    return [(float(low), float("inf") if more else float(high or low)) for low, high, more in every]


def costs():
    costs_of = {}
    for cells in rows(read("docs/programs.md")):
        kind = next((kind for kind in KINDS if re.match(re.escape(kind) + r"(?!\w)", cells[0])), None)
        if kind:
            costs_of[kind] = ranges(cells[-1])
    kind_of = {name: kind for kind, names in KINDS.items() for name in names.split(", ")}
    for name, time, ended in measured():
        kind = kind_of.get(name)
        if kind not in costs_of:
            yield f"docs/works-with.md: {name} is of no row of docs/programs.md (KINDS in tools/contradictions.py)"
            continue
        fits = lambda low, high: low / FACTOR <= time <= high * FACTOR if ended else time <= high  # noqa: E731
        if not any(fits(low, high) for low, high in costs_of[kind]):
            over = "" if ended else "over "
            yield f"docs/programs.md: {kind}: {costs_of[kind]}, and docs/works-with.md has {over}{time} for {name}"


def flags():
    table = read("crates/core/config/src/table.rs")
    known = set(re.findall(r'\bname: "([^"]+)"', table)) | set(re.findall(r'Flag::Off\("([^"]+)"\)', table))
    for cells in rows(read("README.md")):
        if cells[0].startswith("`--"):
            named = re.findall(r"--([a-z-]+)", cells[0])
            yield from (f"README.md: --{flag} is no setting" for flag in named if flag not in known)


def crates():
    """What ARCHITECTURE.md says that crates use, where its table has that column."""
    names = {path.parent.name: path for path in pathlib.Path("crates").rglob("Cargo.toml") if (path.parent / "src").exists()}
    text = read("ARCHITECTURE.md")
    for cells in rows(text):
        name = cells[0].strip("`")
        if len(cells) != 4 or name not in names:
            continue
        manifest = read(names[name]).split("[dependencies]")[-1].split("\n[dev-")[0]
        for used in re.findall(r"^terapage-([a-z-]+)", manifest, flags=re.M):
            if not re.search(rf"\b{used}\b", cells[2]):
                yield f"ARCHITECTURE.md: {name} uses {used}, which its row does not say"
    uses = re.search(r"\*\*`cli`\*\*.*?It uses ([^.]*)\.", text, flags=re.S)
    for used in re.findall(r"^terapage-([a-z-]+)", read("crates/cli/Cargo.toml").split("[dependencies]")[-1].split("[dev-")[0], flags=re.M):
        if not uses or not re.search(rf"\b{used}\b", uses[1]):
            yield f"ARCHITECTURE.md: cli uses {used}, which is not said"


def targets(pages):
    """What pages say to make is a target of the Makefile; what they run from a tree lies in it."""
    known = set(re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.M))
    for page in pages:
        for code in re.findall(r"^    [^\n]*|`[^`\n]+`|^```.*?^```$", read(page), flags=re.M | re.S):
            yield from (f"{page}: make {name} is no target" for name in re.findall(r"^[` ]*make ([a-z]+)\b", code, flags=re.M) if name not in known)
            named = re.findall(r"(?<![\w/.])(?:tools|tests|packaging|contrib)/[\w/.-]*\w", code)
            yield from (f"{page}: {path} is not there" for path in named if not pathlib.Path(path).exists())


def contradictions(names):
    """What is wrong, as lines that begin with the file."""
    pages = [name for name in names if name.endswith(".md") and not name.startswith("site/")]
    return [*links(pages), *numbers(), *costs(), *flags(), *crates(), *targets(["README.md", "CONTRIBUTING.md"])]

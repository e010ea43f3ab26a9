"""Contradictions between the pages, and between the pages and the code: a part of tools/tidy.

Links and their anchors exist; the numbers of programs, rows and examples that pages name are those
of the tables; flags in README.md are settings; what pages say to make can be made; ARCHITECTURE.md
names what each crate uses; each file of an experiment ships.
"""

import pathlib
import re
import unicodedata

WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()


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
        if line.startswith("|") and not set(cells[0]) <= {"-"}:
            yield cells


def number(word):
    return WORDS.index(word.lower()) if word.lower() in WORDS else int(word)


def numbers():
    table = read("docs/results.md").split("<!-- works-with -->")[1].split("<!-- end of works-with -->")[0]
    programs = len(list(rows(table.split("|program|")[1])))
    examples = len(re.findall(r"^\[.*\]\(gallery/", read("examples/README.md"), flags=re.M))
    any_number = rf"(\d+|{'|'.join(WORDS)})"
    for page, what, count in (
        ("docs/programs.md", rf"cost for {any_number} programs", programs),
        ("docs/results.md", rf"in \d+ of {any_number} rows", programs),
        ("examples/README.md", rf"^{any_number} programs with less memory", examples),
        ("README.md", rf"\[{any_number} more examples\]", examples),
        ("README.md", rf"costs for {any_number} real programs", programs),
        ("CONTRIBUTING.md", rf"the {any_number} examples of", examples),
    ):
        text = read(page) if "^" in what else " ".join(read(page).split())
        found = re.findall(what, text, flags=re.M | re.I)
        if not found:
            yield f"{page}: no text is '{what}' (tools/contradictions.py looks for that)"
        yield from (f"{page}: {word}, and {count} are there" for word in found if number(word) != count)


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
    return [*links(pages), *numbers(), *flags(), *crates(), *targets(["README.md", "CONTRIBUTING.md"])]

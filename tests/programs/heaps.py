"""Cases of programs with two heaps: allocators that are linked, preloaded or opened late, and functions looked up in the C library."""

import contextlib
import glob
import importlib.util
import os
import subprocess
import sys

from case import SOURCES, STRICT, Case, Scale, build
from harness import Skipped, check, need, terapage

ALLOCATORS = {
    "jemalloc": "libjemalloc.so.[0-9]*",
    "tcmalloc": "libtcmalloc_minimal.so.[0-9]*",
    "mimalloc": "libmimalloc.so.[0-9]*",
}
# Where an allocator stands: preloaded by the user or by the program that terapage runs, or linked.
PLACES = ("outside", "inside", "linked")

# Data that fits beside the budget.
SMALL_MIB = 12

# How a library is linked. Rust puts arguments of its linker behind the C library, where the loader
# finds the C library's malloc first.
LINK = ("-Wl,--no-as-needed", "{library}", "-Wl,-rpath,{folder}")
LINK_RUST = ("-L", "native={folder}", "-l", "dylib:+verbatim={file}", "-Clink-arg=-Wl,-rpath,{folder}")
# The same work in each language: the compiler's command, its source, and how a library is linked.
LANGUAGES = {
    "": (["gcc", *STRICT, "-fno-builtin"], "churn.c", LINK),
    "-cpp": (["g++", "-std=c++17", *STRICT, "-fno-builtin"], "operators.cpp", LINK),
    "-fortran": (["gfortran", "-O2"], "operators.f90", LINK),
    "-rust": (["rustc", "--edition", "2024", "-O"], "operators.rs", LINK_RUST),
}


def library_of(name):
    """An allocator's library. The packages may be unpacked without being installed, in directories that the variable names."""
    places = [*os.environ.get("TERAPAGE_ALLOCATORS", "").split(":"), "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
    found = [path for place in places if place for path in sorted(glob.glob(os.path.join(place, ALLOCATORS[name])))]
    if not found:
        raise Skipped(f"not installed: {ALLOCATORS[name]}")
    return found[0]


def doctor_says(words, command, library=""):
    """Checks that `terapage doctor` says whose malloc a program will have."""
    if terapage():
        environment = {**os.environ, "LD_PRELOAD": library}
        done = subprocess.run([*terapage(), "doctor", "--", *command], capture_output=True, text=True, env=environment, check=False)
        said = [line for line in done.stdout.splitlines() if line.split()[1:2] == ["malloc"]]
        check(len(said) == 1 and words in said[0], f"doctor about {command}: {said}")


def allocator(name, language=""):
    """Preparation and body for a program with an allocator that is preloaded, and linked to it."""
    command, source, link = LANGUAGES[language]

    def prepare(runner, _scale):
        library = library_of(name)
        whole = [*command, os.path.join(SOURCES, source)]
        build(runner, whole, "program")
        folder, file = os.path.split(library)
        linked = [flag.format(library=library, folder=folder, file=file) for flag in link]
        build(runner, [*whole, *linked], "program-linked")
        with contextlib.suppress(FileExistsError):
            os.symlink(library, runner.shared("allocator.so"))
        program, words = runner.shared("program"), "that of lib" + name
        doctor_says("Terapage's heap, in the place of the C library's", [program])
        doctor_says(words, [program], library)
        doctor_says(words, ["env", "LD_PRELOAD=" + library, program])
        doctor_says(words, [runner.shared("program-linked")])

    def body(runner, scale):
        program, library = [runner.shared("program"), str(scale.amount)], runner.shared("allocator.so")
        runner.run(program, stdout="outside", env={"LD_PRELOAD": library})
        runner.run(["env", "LD_PRELOAD=" + library, *program], stdout="inside")
        runner.run([runner.shared("program-linked"), str(scale.amount)], stdout="linked")

    return {"prepare": prepare, "body": body, "outputs": PLACES}


def late_prepare(runner, _scale):
    build(runner, ["gcc", *STRICT, "-fno-builtin", os.path.join(SOURCES, "late.c")], "late")


def late(runner, scale):
    """Each allocator that is installed, opened late beside the program's own malloc."""
    found = []
    for name in ALLOCATORS:
        with contextlib.suppress(Skipped):
            found.append(library_of(name))
    for index, library in enumerate(found):
        runner.run([runner.shared("late"), str(scale.amount), library], stdout=f"late{index}")
    with open(runner.path("stdout"), "w", encoding="utf-8") as all_said:
        for index in range(len(found)):
            with open(runner.path(f"late{index}"), encoding="utf-8") as said:
                all_said.write(said.read())
    if not found:
        raise Skipped("no allocator is installed")


def looked_up_prepare(runner, _scale):
    command = ["gcc", *STRICT, "-fno-builtin", os.path.join(SOURCES, "looked_up.c")]
    build(runner, [*command, "-shared", "-fPIC", "-DPLUGIN"], "liblookedup.so")
    build(runner, [*command, "-ldl"], "looked_up")


def looked_up(runner, scale):
    """Lookups of all kinds, with each setting of what is paged. The budget holds only if all is."""
    for mode, amount in (("all", scale.amount), ("large", SMALL_MIB), ("off", SMALL_MIB)):
        runner.run([runner.shared("looked_up"), str(amount)], stdout=mode, env={"TERAPAGE_HEAP": mode})


def wrapper_prepare(runner, _scale):
    command = ["gcc", *STRICT, "-fno-builtin", os.path.join(SOURCES, "wrapper.c")]
    build(runner, [*command, "-shared", "-fPIC"], "libwrapper.so")
    library = ["-L", runner.shared("."), "-Wl,--no-as-needed", "-lwrapper", "-Wl,-rpath,$ORIGIN"]
    build(runner, [*command, "-DPROGRAM", *library], "wrapper")
    build(runner, [*command, "-DBOTH", "-rdynamic"], "wrapper-both")


def wrapper(runner, scale):
    """A library that counts the program's objects, linked and preloaded, or the program itself."""
    program = [runner.shared("wrapper"), str(scale.amount)]
    runner.run(program, stdout="linked")
    runner.run(program, stdout="outside", env={"LD_PRELOAD": runner.shared("libwrapper.so")})
    runner.run(["env", "LD_PRELOAD=" + runner.shared("libwrapper.so"), *program], stdout="inside")
    runner.run([runner.shared("wrapper-both"), str(scale.amount)], stdout="both")


def own_python():
    """A Python with cffi: the one of the tests, or the system's."""
    return sys.executable if importlib.util.find_spec("cffi") else "/usr/bin/python3"


JNA = "/usr/share/java/jna.jar"
# Foreign function interfaces: what each needs, and its command. {place} has the scripts.
INTERFACES = {
    "ctypes": ("python3", ["/usr/bin/python3", "{place}/free.py"]),
    "cffi": ("python3", [own_python(), "{place}/free_cffi.py"]),
    "php-ffi": ("php", ["php", "-d", "ffi.enable=1", "{place}/free.php"]),
    "luajit-ffi": ("luajit", ["luajit", "{place}/free.lua"]),
    "fiddle": ("ruby", ["ruby", "{place}/free.rb"]),
    "jna": ("java", ["java", "-Xmx64m", "-Xss512k", "-cp", JNA, "{place}/Free.java"]),
}
# What shows that an interface is there, beside its program.
PROBES = {
    "cffi": [own_python(), "-c", "import cffi"],
    "php-ffi": ["php", "-d", "ffi.enable=1", "-r", "exit(class_exists('FFI') ? 0 : 1);"],
    "fiddle": ["ruby", "-e", "require 'fiddle'"],
    "jna": ["test", "-e", JNA],
}


def interface(name):
    """Preparation and body for a foreign function interface."""
    tool, command = INTERFACES[name]

    def prepare(runner, _scale):
        need(tool)
        if name in PROBES and subprocess.run(PROBES[name], capture_output=True, check=False).returncode != 0:
            raise Skipped(f"not installed: {name}")

    def body(runner, scale):
        place = os.path.join(SOURCES, "ffi")
        runner.run([*(word.format(place=place) for word in command), str(scale.amount)])

    return {"prepare": prepare, "body": body}


HEAPS = [
    *(
        Case(name + language, Scale(32, 44), Scale(256, 640), **allocator(name, language))
        for name in ALLOCATORS
        for language in LANGUAGES
    ),
    Case("late-malloc", Scale(16, 40), Scale(128, 400), late_prepare, late),
    Case("looked-up", Scale(16, 40), Scale(128, 400), looked_up_prepare, looked_up, outputs=("all", "large", "off")),
    Case("wrapper", Scale(16, 40), Scale(128, 400), wrapper_prepare, wrapper, outputs=(*PLACES, "both")),
    *(Case(name, Scale(96, 60) if name == "jna" else Scale(24, 40), Scale(160, 400), **interface(name)) for name in INTERFACES),
]

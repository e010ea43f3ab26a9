"""Metrics, progress, summaries, traces and learn files."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request

from harness import Child, check, need, wait_for
from bench import TIMEOUT_S, paged_in


def promtool(text):
    """Checks metrics with Prometheus' own tool, or returns the reason why that is missing."""
    if shutil.which("promtool") is None:
        return "SKIPPED with promtool: not installed"
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=300, check=False)
    check(checked.returncode == 0 and not checked.stdout and not checked.stderr, f"promtool: {checked.stdout}{checked.stderr}")
    return "checked by promtool"


def value_of(text, name, *labels):
    """The value of a sample: the sum over the lines of this name that have all these labels."""
    lines = (line for line in text.splitlines() if re.match(rf"{name}[{{ ]", line) and all(label in line for label in labels))
    values = [float(line.rpartition(" ")[2]) for line in lines]
    check(values, f"no {name} with {labels} in {text}")
    return sum(values)


def metrics(bench):
    """The counters of paged processes for Prometheus: once, by HTTP in both formats, and as a file that is removed at the end; impossible options are refused."""
    victim, ready, directory = bench.build("victim.c"), bench.path("ready"), bench.path("collected")
    os.mkdir(directory)
    tell = [*bench.command, "metrics"]

    def told(*words):
        done = subprocess.run([*tell, *words], capture_output=True, text=True, timeout=300, check=True)
        return done.stdout

    with bench.start([victim, "96", ready], "--memory", "32M") as child:
        wait_for(lambda: os.path.exists(ready), "the program is ready", TIMEOUT_S)
        with open(ready, encoding="ascii") as file:
            process = file.read().strip()
        own = f'pid="{process}"'
        wait_for(lambda: value_of(told(), "terapage_faults_total", own, 'kind="major"') > 0, "page-ins", TIMEOUT_S)
        text = told()
        check(value_of(text, "terapage_budget_bytes", own, 'comm="victim"') == 32 << 20, text)
        check(value_of(text, "terapage_stalled_seconds_total", own) > 0, text)
        words = promtool(text)
        promtool(told("--by", "cgroup"))
        with Child([*tell, "--listen", "127.0.0.1:0", "--by", "comm"], bench.place, stdout="served") as server:
            wait_for(lambda: "http://" in server.errors(), "the server", TIMEOUT_S)
            url = re.search(r"http://\S+", server.errors()).group(0)
            for accept, end in (("text/plain", ""), ("application/openmetrics-text; version=1.0.0", "# EOF\n")):
                with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=300) as answer:
                    page, kind = answer.read().decode(), answer.headers["Content-Type"]
                check(value_of(page, "terapage_processes", 'comm="victim"') >= 1, page)
                check(kind.startswith(accept.partition(";")[0]) and page.endswith(end) and ("EOF" in page) == bool(end), f"{kind}: {page[-80:]}")
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(url.replace("/metrics", "/nowhere"), timeout=300)
                check(False, "a page that does not exist")
            port = url.split("/")[2]
            second = subprocess.run([*tell, "--listen", port], capture_output=True, text=True, timeout=300, check=False)
            check(second.returncode == 125 and second.stderr.count("\n") == 1 and "in use" in second.stderr, second.stderr)
        with Child([*tell, "--textfile", directory, "--every", "1"], bench.place, stdout="filed") as writer:
            file = os.path.join(directory, "terapage.prom")
            wait_for(lambda: os.path.exists(file), "the file", TIMEOUT_S)
            with open(file, encoding="utf-8") as opened:
                promtool(opened.read())
            writer.process.send_signal(signal.SIGTERM)
            check(writer.wait(TIMEOUT_S) == -signal.SIGTERM and not os.listdir(directory), f"{os.listdir(directory)} stay")
        top = subprocess.run([*bench.command, "top", "--by", "job", "--sort", "stall"], capture_output=True, text=True, timeout=300, check=True)
        check(re.search(rf"^ *{process} +victim ", top.stdout, re.M) and "STALL%" in top.stdout, top.stdout)
        os.kill(int(process), signal.SIGTERM)
        bench.end(child)
    bad = subprocess.run([*tell, "--textfile", bench.path("nowhere")], capture_output=True, text=True, timeout=300, check=False)
    check(bad.returncode == 125 and bad.stderr.count("\n") == 1 and "is no directory" in bad.stderr, bad.stderr)
    return words


def progress(bench):
    """--progress: a line on a terminal that is removed at the end, with the program's own status; nothing without a terminal."""
    need("script")
    victim, ready = bench.build("victim.c"), bench.path("ready")
    argv = [*bench.command, "run", "--memory", "24M", "--store", bench.store, "--progress", "--"]
    with Child([*argv, victim, "64", "once"], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and not child.errors(), f"without a terminal: status {status}: {child.last_words()}")
    shown = bench.path("shown")
    on_terminal = lambda words: ["script", "-qec", " ".join(words), shown]  # noqa: E731

    def text():
        with open(shown, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()

    with Child(on_terminal([*argv, victim, "64", ready]), bench.place) as child:
        wait_for(lambda: os.path.exists(shown) and "stalled" in text(), "the line", TIMEOUT_S)
        with open(ready, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        status = bench.end(child)
        check(status == 128 + signal.SIGTERM, f"status {status}: {child.last_words()}")
    line = re.search(r"terapage: \S+ MiB of 24 MiB resident, [^\r]*store, in \d+ MB/s, out \d+ MB/s, stalled \d+ %", text())
    check(line and "\r\x1b[K" in text().rpartition("slower")[2], repr(text()[-300:]))
    with Child(on_terminal([*argv, "sh", "-c", "'exit 7'"]), bench.place) as child:
        check(bench.end(child) == 7, child.last_words())
    return line.group(0)


def pipe_as_file(bench):
    """A named pipe receives the trace, and remains."""
    victim, pipe, taken = bench.build("victim.c"), bench.path("pipe"), bench.path("taken")
    os.mkfifo(pipe)
    with open(taken, "wb") as file, subprocess.Popen(["timeout", "60", "cat", pipe], stdout=file) as reader:
        with bench.start([victim, "48", "once"], "--memory", "16M", "--trace", pipe) as child:
            status = bench.end(child)
            check(status == 0, f"status {status}: {child.last_words()}")
        reader.wait()
    with open(taken, "rb") as file:
        check(file.read(7) == b"TERATRC", "no trace came through")
    check([name for name in os.listdir(bench.place) if name.startswith("pipe")] == ["pipe"], f"{os.listdir(bench.place)}")
    return ""


def trace_gone(bench):
    """The trace's directory is removed before the program has grown: the program continues, and one line says that there is no trace."""
    victim, place = bench.build("victim.c"), bench.path("traces")
    os.mkdir(place)
    shell = ["sh", "-c", 'rmdir "$1" && exec "$2" 48 once', "sh", place, victim]
    with bench.start(shell, "--memory", "16M", "--trace", os.path.join(place, "trace")) as child:
        status = bench.end(child)
        check(status == 0, f"status {status}: {child.last_words()}")
        lines = [line for line in child.last_words().splitlines() if line.startswith("terapage")]
        check(len(lines) == 1 and "without a trace" in lines[0], f"{lines}")
    return lines[0]


def learn(bench):
    """--learn: no file but its own is replaced, a file that is cut is refused, and a signal that ends the program leaves one."""
    victim, split, file = bench.build("victim.c"), bench.build("split.c"), bench.path("learnt")
    options = ("--memory", "16M", "--block", "4K", "--learn", file)

    def run(program):
        with bench.start(program, *options) as child:
            status = bench.end(child)
            check(status == 0, f"status {status}: {child.last_words()}")
            return [line for line in child.last_words().splitlines() if line.startswith("terapage")]

    check(not run([split, "48", "7200"]), "a first run complains")
    with open(file, "rb") as learnt:
        first = learnt.read()
    check(first.startswith(b"TERATRC"), "no file was written")
    lines = run([victim, "48", "once"])
    check(len(lines) == 1 and "another program" in lines[0], f"{lines}")
    with open(file, "rb") as learnt:
        check(learnt.read() == first, "a file of another program was replaced")
    for text in (first[:-9], b"text"):
        with open(file, "wb") as learnt:
            learnt.write(text)
        bench.refused(*options, says="--learn.*remove it", status=125)
        with open(file, "rb") as learnt:
            check(learnt.read() == text, "a file that is refused was replaced")
    os.remove(file)
    ready = bench.path("ready")
    with bench.start([victim, "96", ready], *options) as child:
        wait_for(lambda: os.path.exists(ready) or child.process.poll() is not None, "the program is ready", TIMEOUT_S)
        with open(ready, encoding="ascii") as about:
            process = int(about.read())
        wait_for(lambda: child.process.poll() is not None or paged_in(bench, process) > 16 << 20, "page-ins", TIMEOUT_S)
        os.kill(process, signal.SIGTERM)
        status = bench.end(child)
        check(status == -signal.SIGTERM, f"status {status}: {child.last_words()}")
    with open(file, "rb") as learnt:
        check(learnt.read(7) == b"TERATRC", "a program that a signal ends leaves no file")
    check([name for name in os.listdir(bench.place) if name.startswith("learnt")] == ["learnt"], f"{os.listdir(bench.place)}")
    return ""


def summary(bench):
    """--summary prints one line that agrees with --stats, for one process and for several, and says what would help if the program waited much."""
    victim, stats = bench.build("victim.c"), bench.path("stats")
    says = (
        r"terapage: summary: [\d.]+ s, (\d+) process(?:es)?, (\d+) paged; peak (\d+) MiB in the budget of 32 MiB.*, (?:at most )?(\d+) MiB untracked; "
        r"page-in (\d+) MiB, page-out (\d+) MiB, blocks of \d+ KiB; threads worked [\d.]+ s and waited [\d.]+ s for memory \((\d+)% of both\): "
        r"[\d.]+ s for (\d+) major faults, [\d.]+ s for \d+ minor faults and first touches, [\d.]+ s for \d+ requests"
    )
    shell = ["sh", "-c", '"$0" 96 once & "$0" 64 once; wait; "$0" 1 once', victim]
    for words, processes, paged in (([victim, "96", "once"], 1, 1), (shell, 4, 2)):
        with bench.start(words, "--memory", "32M", "--stats", stats, "--summary") as child:
            status, lines = bench.end(child), child.errors().splitlines()
        check(status == 0 and 1 <= len(lines) <= 2, f"status {status}: {lines}")
        found = re.fullmatch(says, lines[0])
        check(found and all("what may help" in line for line in lines[1:]), f"{lines}")
        all_stats = []
        for name in [name for name in os.listdir(bench.place) if name.startswith("stats")]:
            with open(bench.path(name), encoding="utf-8") as file:
                all_stats.append(json.load(file))
            os.remove(bench.path(name))
        sums = {key: sum(one[key] for one in all_stats if one["started_s"]) for key in ("resident_peak_bytes", "page_in_bytes", "page_out_bytes", "major_faults")}
        said = [int(number) for number in found.groups()]
        check(said[:2] == [processes, paged], f"{said[:2]} processes")
        least = max(one["resident_peak_bytes"] for one in all_stats) >> 20
        check(least <= said[2] <= min(sums["resident_peak_bytes"] >> 20, 64), f"peak {said[2]} MiB: {sums}, largest {least} MiB")
        check(said[6] <= 100 and said[7] == sums["major_faults"], f"{said} for {sums}")
        check(all(abs(said[4 + at] - (sums[key] >> 20)) <= 2 for at, key in enumerate(("page_in_bytes", "page_out_bytes"))), f"{said} for {sums}")
    with bench.start([victim, "1", "once"], "--memory", "32M", "--summary") as child:
        status, lines = bench.end(child), child.errors().splitlines()
    check(status == 0 and len(lines) == 1 and "1 process; nothing was paged, since the data fit: peak " in lines[0], f"status {status}: {lines}")
    # GNU's programs close standard error before they end.
    text = bench.path("text")
    with open(text, "w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in range(50_000))
    with bench.start(["sort", "-S", "100M", text], "--memory", "4M", "--summary") as child:
        status, lines = bench.end(child), child.errors().splitlines()
    check(status == 0 and lines and lines[0].startswith("terapage: summary: "), f"sort: status {status}: {lines}")
    # Children that a signal ends have no numbers, but are counted.
    shell = '"$0" 48 wait & child=$!; until [ -e wait ]; do sleep 0.1; done; kill -KILL $child; wait $child; (exec env -i TERAPAGE=off "$0" 1 once); "$0" 1 once'
    with bench.start(["sh", "-c", shell, victim], "--memory", "32M", "--summary") as child:
        status, lines = bench.end(child), child.errors().splitlines()
    last = next((line for line in lines if line.startswith("terapage: summary: ")), "")
    check(status == 0 and "; 1 ended by a signal or without the C library, not counted" in last, f"status {status}: {lines}")
    return ""

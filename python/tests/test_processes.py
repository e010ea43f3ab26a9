"""Forks, spawned processes, and programs under `terapage run`."""

import json

import pytest
from conftest import native


def test_a_forked_child_sees_memory_as_it_was(python):
    python(
        """
        a = tp.empty(5 << 20, "i8")
        a[:] = np.arange(len(a))
        m = tp.memmap("file", "i8", "w+", shape=1 << 20)
        m[:] = 4
        child = os.fork()
        if child == 0:
            try:
                assert int(a[::513].sum()) == int(np.arange(0, len(a), 513).sum())
                a[:] = 1
                with tp.arrays():
                    b = np.ones(3 << 20) + a[: 3 << 20]
                assert (b == 2).all() and tp.budget() == 16 << 20
                m[:] = 5      # the child's own, and never the file's
                m.flush()
                del m
                os._exit(0)
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr)
                os._exit(1)
        a[:7] = 0
        assert os.waitpid(child, 0)[1] == 0
        assert not a[:8][:7].any() and int(a[7:].sum()) == int(np.arange(7, len(a)).sum())
        m.flush()
        assert (np.fromfile("file", "i8") == 4).all()
        """
    )


def test_threads_and_processes_keep_their_processors(python):
    python(
        """
        import subprocess, threading

        own = os.sched_getaffinity(0)
        a = tp.empty(12 << 20, "i8")
        a[:] = 1
        pages = np.random.default_rng(1).integers(0, len(a) // 512, (40, 400)) * 512
        seen = []
        for some in pages:
            for at in some.tolist():
                assert a[at] == 1
            seen.append(os.sched_getaffinity(0))
            thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
            thread.start()
            thread.join()
        ask = "import os; print(len(os.sched_getaffinity(0)))"
        its = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True).stdout
        assert [one for one in seen if one != own] == []
        assert int(its) == len(own)
        """,
        budget="24M",
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(python, method):
    python(
        """
        import multiprocessing

        def work(seed):
            with tp.arrays():
                a = np.random.default_rng(seed).random(3 << 20)
                a.sort()
            return float(a[1000]), tp.budget(), a[:5]

        if __name__ == "__main__":
            own = tp.ones if hasattr(tp, "ones") else tp.full(1 << 20, 7.0)
            with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
                results = pool.map(work, range(3))
            for seed, (value, budget, head) in enumerate(results):
                expected = np.sort(np.random.default_rng(seed).random(3 << 20))
                assert value == expected[1000] and budget == 16 << 20 and (head == expected[:5]).all()
            assert (own == 7.0).all()
        """,
        method,
    )


def run(place, *options):
    return [native(), "run", "--memory", "24M", "--store", place, *options, "--"]


@pytest.mark.parametrize("start", ["0", ""])
def test_under_run_there_is_one_pager(python, place, start):
    python(
        """
        def pagers():
            names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.islink(f"/proc/self/fd/{fd}")]
            return sum("terapage-stats" in name for name in names)

        tp.init(memory="5M", address_space="64M")           # without effect
        a = tp.empty(6 << 20, "i8")
        a[:] = np.arange(len(a))
        plain = np.arange(6 << 20)
        x = np.random.default_rng(1).random(4 << 20)
        np.save("x.npy", x)
        m = tp.memmap("x.npy", mode="r+")
        m *= 2
        tp.random(m); tp.prefetch(m[:1000]); tp.done(a); tp.sequential(m)
        tp.prefetch(plain)                                  # all of numpy's arrays are paged here
        try:
            tp.set_budget("5M")
        except RuntimeError as error:
            assert "terapage run" in str(error)
        else:
            raise AssertionError("set")
        stats = tp.stats()
        assert stats.budget_bytes == 24 << 20 and pagers() == 1, (stats, pagers())
        assert stats.resident_peak_bytes <= stats.budget_bytes and stats.page_in_bytes > 0
        child = os.fork()
        if child == 0:
            good = (m == x * 2).all() and (a == plain).all() and pagers() == 1 and tp.stats().budget_bytes == 24 << 20
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        m.flush()
        np.testing.assert_array_equal(np.load("x.npy"), x * 2)
        m[0] = 5
        del m
        assert np.load("x.npy")[0] == 5 and (a == plain).all()
        with tp.arrays():
            assert (np.concatenate([x, x])[-1]) == x[-1]
        """,
        before=run(place),
        **({"TERAPAGE_START_BYTES": start} if start else {}),
    )


def test_under_run_threads_fork_and_sync_at_the_same_time(python, place):
    python(
        """
        import threading
        x = np.arange(3 << 20)
        np.save("x.npy", x)
        np.save("y.npy", x)
        m = tp.memmap("x.npy", mode="r+")
        # A child may not read what its parent flushes.
        r = tp.memmap("y.npy", mode="r")
        over = threading.Event()

        def change():
            round = 0
            while not over.is_set():
                round += 1
                m[round % 1000 :: 1000] = -round
                m.flush()

        def allocate():
            while not over.is_set():
                with tp.arrays():
                    b = np.ones(200_000) + 1
                assert (b == 2).all()
                c = tp.zeros(3)
                assert not c.any()

        threads = [threading.Thread(target=target) for target in (change, allocate, allocate)]
        [thread.start() for thread in threads]
        for _ in range(8):
            child = os.fork()
            if child == 0:
                d = tp.full(500_000, 3)
                os._exit(0 if (d == 3).all() and (r[::65536] == x[::65536]).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
        over.set()
        [thread.join() for thread in threads]
        m.flush()
        np.testing.assert_array_equal(np.load("x.npy"), m)
        """,
        before=run(place),
        TERAPAGE_START_BYTES="0",
    )


def test_counters_of_a_run_have_the_files(python, place):
    stats = f"{place}/stats.json"
    python(
        """
        np.save("x.npy", np.arange(6 << 20))
        m = tp.memmap("x.npy", mode="r")
        assert int(m.sum()) == (6 << 20) * ((6 << 20) - 1) // 2
        """,
        before=run(place, "--stats", stats),
    )
    with open(stats, encoding="utf-8") as file:
        counters = json.load(file)
    assert counters["page_in_bytes"] >= 48 << 20, counters


def test_the_program_is_there(python, place):
    done = python(
        """
        import subprocess
        answer = subprocess.run([sys.executable, "-m", "terapage", "--version"], capture_output=True, text=True)
        assert answer.returncode == 0 and tp.__version__ in answer.stdout, answer
        answer = subprocess.run([sys.executable, "-m", "terapage", "doctor"], capture_output=True, text=True)
        assert "userfaultfd" in answer.stdout + answer.stderr, answer
        code = "import numpy as np; a = np.arange(6 << 20); print(int(a.sum()))"
        words = [sys.executable, "-m", "terapage", "run", "--memory", "24M", "--", sys.executable, "-c", code]
        answer = subprocess.run(words, capture_output=True, text=True)
        assert answer.stdout == f"{(6 << 20) * ((6 << 20) - 1) // 2}\\n", answer
        """
    )
    assert done.stderr == ""


def test_no_library_and_no_program_are_one_line(python, place):
    done = python(
        """
        import subprocess
        try:
            tp.empty(3)
        except ImportError as error:
            assert "TERAPAGE_NATIVE" in str(error) and "\\n" not in str(error)
        else:
            raise AssertionError("found")
        answer = subprocess.run([sys.executable, "-m", "terapage", "doctor"], capture_output=True, text=True)
        assert answer.returncode == 127 and len(answer.stderr.splitlines()) == 1, answer
        """,
        TERAPAGE_NATIVE=place,
    )
    assert done.stderr == ""

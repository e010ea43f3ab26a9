"""Arrays beyond the budget, compared with numpy's own results."""

import pytest


def test_importing_starts_and_imports_nothing(python):
    python(
        """
        import subprocess
        code = "import sys, terapage; assert 'numpy' not in sys.modules and 'ctypes' not in sys.modules; dir(terapage)"
        subprocess.run([sys.executable, "-c", code], check=True)
        tp.empty  # the module is loaded, and no pager runs
        assert not any("terapage" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                       if os.path.islink(f"/proc/self/fd/{fd}"))
        """
    )


def test_an_array_of_four_budgets_keeps_every_element(python):
    python(
        """
        a = tp.empty((8 << 20,), "i8")
        a[:] = np.arange(len(a))
        assert type(a) is np.ndarray and a.flags.owndata
        assert a.nbytes == 4 * tp.budget()
        assert (a[::4097] == np.arange(0, len(a), 4097)).all()
        assert int(a.sum()) == len(a) * (len(a) - 1) // 2
        stats = tp.stats()
        assert stats.budget_bytes == 16 << 20 and stats.page_out_bytes > 2 * stats.budget_bytes, stats
        assert stats.resident_peak_bytes <= stats.budget_bytes
        before = stats.store_bytes
        assert before > 0 and stats.as_dict()["store_bytes"] == before
        del a
        import time
        while tp.stats().store_bytes >= before:     # the counters follow a moment later
            time.sleep(0.01)
        rss = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")]
        assert rss[0] << 10 < (16 << 20) + (96 << 20), rss
        """
    )


def test_constructors_are_numpys(python):
    python(
        """
        for dtype in ("f4", "c16", "M8[s]", "S7", "?", [("a", "i4"), ("b", "f8", (2,))]):
            for shape in (5, (), (0,), (3, 0, 2), (200, 300)):
                z = tp.zeros(shape, dtype)
                np.testing.assert_array_equal(z, np.zeros(shape, dtype))
                assert z.dtype == np.dtype(dtype) and tp.empty(shape, dtype).shape == z.shape
        np.testing.assert_array_equal(tp.full((2, 3), 7), np.full((2, 3), 7))
        assert tp.full(3, 1.5).dtype == float and tp.full(2, 1, "u1").dtype == np.uint8
        x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
        np.testing.assert_array_equal(tp.array(x), x)
        assert tp.array(x).flags.f_contiguous and tp.array(x) is not x
        assert tp.array([1, 2]).dtype == np.array([1, 2]).dtype
        like = tp.empty_like(x, dtype="f4")
        assert like.shape == x.shape and like.dtype == np.float32 and like.flags.f_contiguous
        """
    )


def test_objects_are_refused(python):
    python(
        """
        for make in (lambda: tp.empty(3, object), lambda: tp.zeros(3, "O"), lambda: tp.full(3, None),
                     lambda: tp.array([object()]), lambda: tp.empty_like(np.empty(3, object))):
            try:
                make()
            except TypeError as error:
                assert "object" in str(error) and "\\n" not in str(error)
            else:
                raise AssertionError("not refused")
        """
    )


def test_more_than_the_address_space_is_a_memory_error(python):
    python(
        """
        tp.init(address_space="128M")
        try:
            tp.empty(1 << 30, "u1")
        except MemoryError as error:
            pass
        else:
            raise AssertionError("not refused")
        a = tp.zeros(16 << 20, "u1")
        assert not a.any()
        """
    )


def test_all_that_numpy_makes_in_the_block_is_paged(python):
    python(
        """
        def name(array):
            from numpy.testing import IS_PYPY
            try:
                from numpy._core.multiarray import get_handler_name
            except ImportError:
                from numpy.core.multiarray import get_handler_name
            return get_handler_name(array)

        random = np.random.default_rng(5)
        x, w = random.random((3000, 700)), random.random((700, 40))
        plain = np.sort(x @ w, axis=0)
        with tp.arrays():
            paged = np.sort(x @ w, axis=0)
            big = np.concatenate([x] * 5)
            with tp.arrays():
                inner = np.ones(3)
            after_inner = np.ones(3)
        outside = np.ones(3)
        assert [name(a) for a in (paged, big, inner, after_inner)] == ["terapage"] * 4
        assert name(outside) == "default_allocator"
        np.testing.assert_array_equal(plain, paged)
        np.testing.assert_array_equal(big[::3000], np.stack([x[0]] * 5))
        assert big.nbytes > 4 * tp.budget()
        try:
            with tp.arrays():
                raise KeyError("mine")
        except KeyError:
            assert name(np.ones(2)) == "default_allocator"

        @tp.arrays()
        def within():
            return np.ones(2)

        assert name(within()) == "terapage"
        """
    )


def test_sizes_change_between_allocation_and_free(python):
    python(
        """
        import gc
        with tp.arrays():
            odd = [np.empty([2, 0, 2]), np.empty((0,)), np.array([]), np.empty((), "V0")]
            grown = np.arange(10.0)
            for size in (100, 100_000, 3_000_000, 50, 0, 7):
                grown.resize(size, refcheck=False)
                grown[:1] = 3.0
            assert grown[0] == 3.0
            text = np.array(["a"]); text.resize(40_000, refcheck=False)
            from_iterator = np.fromiter(range(200_000), "i8")
        # Arrays of the plain handler are resized inside, paged ones outside of the block.
        plain = np.arange(1000)
        with tp.arrays():
            plain.resize(400_000, refcheck=False)
            plain.shape = (400, 1000)
        from_iterator.resize(2_000_000, refcheck=False)
        assert plain[0, 999] == 999 and not plain[1].any() and from_iterator[199_999] == 199_999
        del odd, grown, text, from_iterator, plain
        gc.collect()
        """
    )


def test_threads_have_handlers_of_their_own(python):
    python(
        """
        import threading, contextvars
        try:
            from numpy._core.multiarray import get_handler_name
        except ImportError:
            from numpy.core.multiarray import get_handler_name
        found = {}
        def look(key):
            found[key] = get_handler_name(np.ones(3))
        with tp.arrays():
            for key, target in (("plain", lambda: look("plain")),
                                ("copied", lambda context=contextvars.copy_context(): context.run(look, "copied"))):
                thread = threading.Thread(target=target); thread.start(); thread.join()
        # Since 3.14, free-threaded builds (and a flag) let threads inherit the context.
        inherits = getattr(sys.flags, "thread_inherit_context", 0)
        assert found["plain"] == ("terapage" if inherits else "default_allocator"), found
        assert found["copied"] == "terapage", found

        def work(seed):
            with tp.arrays():
                random = np.random.default_rng(seed)
                a = random.integers(0, 100, 600_000)
                for _ in range(5):
                    a = np.concatenate([a[1:], a[:1]])
                results[seed] = a
        results = {}
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
        for seed, a in results.items():
            np.testing.assert_array_equal(np.roll(a, 5), np.random.default_rng(seed).integers(0, 100, 600_000))
        """
    )


def test_advice_changes_no_byte(python):
    python(
        """
        a = tp.empty((2048, 2048), "f8")
        a[:] = np.arange(2048)
        for advise in (tp.prefetch, tp.done, tp.random, tp.sequential, tp.done, tp.prefetch):
            for part in (a, a[100:200], a[::-1, ::-3], a.T[5:6], a[:0], a[7, 8]):
                if isinstance(part, np.ndarray):
                    advise(part)
        assert (a == np.arange(2048)).all()
        out = tp.stats().page_out_bytes
        a[:128] += 0.0
        tp.done(a)
        for mistake, error in ((np.ones(1 << 20), ValueError), ([1, 2], TypeError)):
            try:
                tp.prefetch(mistake)
            except error as error:
                assert "\\n" not in str(error)
            else:
                raise AssertionError("not refused")
        """
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("memory='4X'", "ValueError"),
        ("memory=-3", "ValueError"),
        ("memory='0'", "ValueError"),
        ("memory='9999T'", "ValueError"),
        ("block=5000", "ValueError"),
        ("policy='best'", "ValueError"),
        ("store='/dev/null/nowhere'", "(ValueError, OSError)"),
        ("store=''", "ValueError"),
        ("address_space='1M'", "ValueError"),
    ],
)
def test_wrong_options_say_so_in_one_line(python, options, error):
    python(
        f"""
        try:
            tp.init({options})
        except {error} as error:
            assert str(error) and "\\n" not in str(error), error
        else:
            raise AssertionError("not refused")
        tp.init(memory="8M")
        assert tp.budget() == 8 << 20
        try:
            tp.init()
        except RuntimeError as error:
            assert "started" in str(error)
        else:
            raise AssertionError("a second start")
        """
    )


def test_the_budget_can_be_less_and_more_while_the_program_runs(python):
    python(
        """
        import time
        MIB = 1 << 20

        def comes_to(most, least=0):
            for _ in range(3000):
                if least <= tp.stats().resident_bytes <= most:
                    return True
                time.sleep(0.01)
            return False

        a = tp.empty(6 * MIB, "i8")
        a[:] = np.arange(len(a))
        assert tp.stats().resident_bytes > 8 * MIB
        tp.set_budget("5M")
        assert tp.budget() == 5 * MIB and comes_to(5 * MIB), tp.stats()
        assert int(a.sum()) == len(a) * (len(a) - 1) // 2 and comes_to(5 * MIB), tp.stats()
        child = os.fork()
        if child == 0:
            good = int(a[::511].sum()) == int(np.arange(0, len(a), 511).sum()) and tp.budget() == 5 * MIB
            os._exit(0 if good and comes_to(5 * MIB) else 1)
        assert os.waitpid(child, 0)[1] == 0
        tp.set_budget(16 * MIB)
        a += 1
        assert tp.budget() == 16 * MIB and comes_to(16 * MIB, 8 * MIB), tp.stats()
        for size in ("17M", 1, "64K", 2**63):
            try:
                tp.set_budget(size)
            except ValueError as error:
                assert str(error) and "\\n" not in str(error)
            else:
                raise AssertionError(f"{size} is not refused")
        tp.set_budget("128K")
        assert (a == np.arange(1, len(a) + 1)).all() and tp.budget() == 128 << 10
        """
    )


def test_the_budget_is_set_in_the_midst_of_work(python):
    python(
        """
        import random, threading
        over = threading.Event()
        def change():
            order = random.Random(7)
            while not over.wait(0.003):
                tp.set_budget(order.randrange(1 << 20, 16 << 20))
        tp.init()
        thread = threading.Thread(target=change); thread.start()
        parts = [tp.full(1 << 18, n, "i8") for n in range(20)]
        for turn in range(4):
            for n, part in enumerate(parts):
                assert (part == n + turn).all()
                part += 1
            with tp.arrays():
                assert len(np.sort(np.concatenate(parts))) == 20 << 18
        over.set(); thread.join()
        """
    )


def test_the_handler_takes_only_its_own_memory(python):
    python(
        """
        import ctypes, errno
        from terapage import _library
        class Handler(ctypes.Structure):
            _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8)] + [
                (name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]
        own, size, none = ctypes.c_void_p, ctypes.c_size_t, None
        handler = Handler.from_address(_library.lib().tera_numpy_handler())
        assert handler.name == b"terapage" and handler.version == 1
        call = lambda name, result, *types: ctypes.CFUNCTYPE(result, own, *types, use_errno=True)(getattr(handler, name))
        malloc, realloc, free = call("malloc", own, size), call("realloc", own, own, size), call("free", none, own, size)
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.free.argtypes = own, [own]

        foreign = libc.malloc(100)
        ctypes.memset(foreign, 7, 100)
        assert realloc(None, foreign, 1 << 20) is None and ctypes.get_errno() == errno.EINVAL
        assert ctypes.string_at(foreign, 100) == bytes([7]) * 100
        libc.free(foreign)

        # numpy may say another size at the end than at the beginning.
        for at_first, at_last in ((100, 1), (1, 1 << 20), (3 << 20, 0)):
            at = malloc(None, at_first)
            ctypes.memset(at, 9, at_first)
            at = realloc(None, at, 5 << 20)
            assert ctypes.string_at(at, at_first) == bytes([9]) * at_first
            free(None, at, at_last)
        assert int(np.ones(9).sum()) == 9 and tp.zeros(1 << 20).sum() == 0
        """
    )


def test_arrays_outlive_the_modules(python):
    done = python(
        """
        import builtins
        with tp.arrays():
            builtins.kept = [np.ones(n) for n in (1, 1000, 1_000_000)]
        """
    )
    assert done.stderr == ""

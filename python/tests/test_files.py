"""memmap, load and save: the files of numpy."""


def test_a_mapped_npy_file_is_numpys_array(python):
    python(
        """
        x = np.random.default_rng(1).random((700, 9000)).astype("f8")   # 3 budgets
        for order in "CF":
            path = f"{order}.npy"
            y = np.asarray(x, order=order)      # compared in the order of memory
            np.save(path, y)
            m = tp.memmap(path, mode="r")
            assert isinstance(m, np.memmap) and m.shape == x.shape and m.dtype == x.dtype
            assert m.flags.f_contiguous == (order == "F") and not m.flags.writeable
            assert (m == y).all()
            part = np.s_[3:5] if order == "C" else np.s_[:, 3:5]
            assert float(m[part].sum()) == float(y[part].sum()) and m[:, 7].filename == m.filename
            try:
                m[0, 0] = 1
            except ValueError:
                pass
            else:
                raise AssertionError("it was written")
        assert tp.stats().page_in_bytes >= 2 * x.nbytes and tp.stats().page_out_bytes == 0, tp.stats()
        """
    )


def test_changes_reach_the_file_by_flush_and_at_the_end(python, place):
    python(
        """
        m = tp.memmap("raw", dtype="i4", mode="w+", offset=100, shape=(3 << 20, 4))
        m[:] = np.arange(4)
        m[5] = 9
        assert not np.fromfile("raw", "i4", 8, offset=100).any(), "before the flush"
        m.flush()
        np.testing.assert_array_equal(np.fromfile("raw", "i4", 24, offset=100)[20:], [9] * 4)
        m[-1] = 8
        del m
        assert os.path.getsize("raw") == 100 + (48 << 20)
        np.testing.assert_array_equal(np.memmap("raw", "i4", "r", 100, (3 << 20, 4))[-1], [8] * 4)
        n = tp.memmap("raw", dtype="i4", offset=100)      # r+, all of it
        n[0] = 77
        c = tp.memmap("raw2", dtype="u1", mode="w+", shape=5000)
        c[:] = 3
        view = n[:10]
        globals()["kept"] = view        # lives until the interpreter ends
        """
    )
    import numpy as np

    raw = np.fromfile(f"{place}/raw", "i4", 1, offset=100)
    assert raw[0] == 77 and (np.fromfile(f"{place}/raw2", "u1") == 3).all()


def test_copy_on_write_leaves_the_file(python):
    python(
        """
        np.save("a.npy", np.arange(4_000_000))
        c = tp.memmap("a.npy", mode="c")
        c += 1
        assert (c == np.arange(1, 4_000_001)).all()
        c.flush()
        del c
        np.testing.assert_array_equal(np.load("a.npy"), np.arange(4_000_000))
        """
    )


def test_load_and_save_stream(python):
    python(
        """
        for x in (np.arange(6_000_000.0).reshape(2000, 3000), np.asfortranarray(np.arange(60).reshape(3, 4, 5)),
                  np.arange(10)[::3], np.float32(7), np.empty((0, 3)), np.array(["a", "bcd"]),
                  np.arange(3).astype("M8[D]"), np.zeros(4, [("a", "i2"), ("b", "f4")]),
                  np.zeros(2, [(f"{'x' * 30}{n}", "i2") for n in range(100)])):
            tp.save("x", x)
            np.testing.assert_array_equal(np.load("x.npy"), x)
            np.save("y.npy", x)
            y = tp.load("y.npy")
            np.testing.assert_array_equal(y, x)
            plain = np.load("y.npy")
            assert y.dtype == plain.dtype and y.flags.f_contiguous == plain.flags.f_contiguous
            tp.save("z.npy", y)
            assert open("z.npy", "rb").read() == open("y.npy", "rb").read()
        assert tp.stats().resident_peak_bytes <= tp.budget()
        """
    )


def test_wrong_files_say_so_in_one_line(python):
    python(
        """
        np.save("good.npy", np.arange(100_000))
        open("short.npy", "wb").write(open("good.npy", "rb").read()[:9000])
        open("empty", "wb").close()
        open("odd", "wb").write(b"12345")
        np.save("objects.npy", np.array([None]), allow_pickle=True)
        np.savez("many.npz", a=1)
        np.save("long.npy", np.zeros(2, [(f"{'x' * 300}{n}", "i2") for n in range(100)]))
        np.save("third.npy", np.zeros(2, [("\u03b1", "i2")]))
        held = tp.memmap("good.npy", mode="r+")
        refused = (
            (FileNotFoundError, lambda: tp.memmap("nowhere.npy")), (FileNotFoundError, lambda: tp.load("nowhere")),
            (ValueError, lambda: tp.memmap("short.npy")), (ValueError, lambda: tp.load("short.npy")),
            (ValueError, lambda: tp.memmap("empty")), (ValueError, lambda: tp.memmap("odd", "i4")),
            (ValueError, lambda: tp.memmap("odd", "u1", shape=6)), (ValueError, lambda: tp.memmap("odd", shape=(0, 2))),
            (ValueError, lambda: tp.memmap("new", mode="w+")), (ValueError, lambda: tp.memmap("odd", mode="x")),
            (ValueError, lambda: tp.memmap("odd", offset=-1)), (ValueError, lambda: tp.memmap("odd", offset=9)),
            (TypeError, lambda: tp.memmap("odd", object)), (ValueError, lambda: tp.memmap("objects.npy")),
            (ValueError, lambda: tp.memmap("long.npy")), (ValueError, lambda: tp.load("third.npy")),
            (ValueError, lambda: tp.load("objects.npy")), (ValueError, lambda: tp.load("many.npz")),
            (ValueError, lambda: tp.memmap("good.npy", offset=8)), (ValueError, lambda: tp.memmap("good.npy", mode="r")),
            (IsADirectoryError, lambda: tp.memmap(".", "u1")), (ValueError, lambda: tp.save("o", np.array([None]))),
        )
        for kind, make in refused:
            try:
                made = make()
            except kind as error:
                assert "\\n" not in str(error), error
            else:
                raise AssertionError(f"not refused: {made!r}")
        held[:] = 5
        del held
        assert (tp.memmap("good.npy", mode="r") == 5).all()
        """
    )

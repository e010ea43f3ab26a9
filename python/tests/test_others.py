"""torch and IPython, if they are installed."""

import pytest


def test_tensors_share_paged_memory(python):
    pytest.importorskip("torch", reason="SKIPPED: torch is not installed")
    python(
        """
        import torch
        a = tp.torch.zeros(3000, 3000)
        assert a.dtype == torch.float32 and a.shape == (3000, 3000) and not a.any()
        b = tp.torch.full((2048, 2048), 3, dtype=torch.bfloat16)
        assert (b == 3).all()
        c = tp.torch.tensor(torch.arange(5_000_000))
        assert int(c.sum()) == 5_000_000 * 4_999_999 // 2
        d = tp.torch.empty((0, 3))
        assert d.shape == (0, 3) and tp.stats().page_out_bytes > 0
        """
    )


def test_the_magic_runs_a_cell_in_paged_memory(python):
    pytest.importorskip("IPython", reason="SKIPPED: IPython is not installed")
    done = python(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "terapage")
        shell.run_cell_magic("terapage", "--memory 20M", "import numpy as np\\na = np.arange(4 << 20)\\nb = a + 1\\n")
        from terapage import _library
        assert _library.budget() == 20 << 20 and shell.user_ns["b"][-1] == 4 << 20
        assert tp.stats().page_out_bytes > 0
        shell.run_cell_magic("terapage", "--memory 1G", "pass")
        shell.run_cell_magic("terapage", "--quiet --memory 10M", "c = np.ones(3)")
        assert tp.budget() == 10 << 20
        """
    )
    lines = done.stderr.splitlines()
    assert "major faults" in lines[0] and "20.0 MiB" in lines[0] and "runs already" in lines[1], done.stderr


def test_what_is_wrong_with_the_magic_is_one_line(python):
    pytest.importorskip("IPython", reason="SKIPPED: IPython is not installed")
    done = python(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "terapage")
        for words in ("--memry 4G", "--memory", "--memory 4X", '--memory "4G', "words"):
            done = shell.run_cell(f"%%terapage {words}\\nran = 1\\n")
            assert not done.success and "ran" not in shell.user_ns, words
        """
    )
    lines = done.stderr.splitlines()
    assert len(lines) == 5 and all(line.startswith("UsageError: %%terapage: ") for line in lines), done.stderr
    assert "did you mean --memory?" in lines[0] and "4X" in lines[2], done.stderr
    assert "Traceback" not in done.stdout, done.stdout

"""`terapage far serve`."""

import contextlib
import os
import socket

from harness import Child, check, free_port, wait_for
from bench import server_program


def served(bench):
    """`terapage far serve` starts a usable server, and refuses options with which it would lose blocks."""
    server_program()
    word = os.path.join(bench.place, "word")
    with open(word, "w", encoding="ascii") as file:
        file.write("rightword\n")
    port = str(free_port())

    def serve(*words):
        program = ["--server", server_program()]
        return Child([*bench.command, "far", "serve", "--memory", "256M", "--port", port, *program, *words], bench.place, stdout="served")

    for words, says in (
        (("--bind", "0.0.0.0"), "password-file"),
        (("--password-file", word), "chmod 600"),
        (("--", "--save", "60 1"), "--save"),
    ):
        with serve(*words) as child:
            bench.stopped(child, says)
    os.chmod(word, 0o600)
    with serve("--password-file", word, "--bind", "127.0.0.1") as child:
        url = f"valkey://:rightword@127.0.0.1:{port}"

        def is_up():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                return True
            check(child.process.poll() is None, f"the server ends: {child.last_words()} {child.output()[-300:]}")
            return False

        wait_for(is_up, "the server listens")
        with open(f"/proc/{child.pid}/cmdline", encoding="latin-1") as line:
            check("rightword" not in line.read(), "the password is in the command line")
        bench.refused(f"valkey://127.0.0.1:{port}", "NOAUTH")
        program = bench.churn(url, passes="1")
        bench.go_on()
        bench.good(program)

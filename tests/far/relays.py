"""Relays between a program and its server, which cut, change, drop, add or delay bytes."""

import contextlib
import random
import socket
import threading
import time


class Relay:
    """A relay between a program and a server that damages some of the server's replies."""

    def __init__(self, server, spoil, seed, port=None):
        self.server = server
        self.to_port = port or server.port
        self.spoil = spoil
        self.random = random.Random(seed)
        self.large = self.random.randrange(50)
        """So many large replies come before the first that is spoilt; after it, one in a hundred is."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.spoilt, self.lock = 0, threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"valkey://127.0.0.1:{self.port}"

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.to_port))
                except OSError:
                    client.close()
                    continue
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, target, is_reply):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_reply and len(data) > 30000 and self.is_next():
                    data = self.spoil(self.random, bytearray(data))
                if data is None:
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def is_next(self):
        """Whether a large reply is to be spoilt."""
        with self.lock:
            self.large -= 1
            is_next = self.random.random() < 0.01 if self.spoilt else self.large < 0
            self.spoilt += is_next
        return is_next

    def close(self):
        self.listener.close()


def cut(_random, data):
    """Ends the replies."""
    return None if len(data) % 2 else data[: len(data) // 2] and None


def flip(chance, data):
    """Flips a bit."""
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    return data


def drop(chance, data):
    """Drops some bytes."""
    at = chance.randrange(len(data))
    del data[at : at + chance.randrange(1, 100)]
    return data


def add(chance, data):
    """Adds some bytes."""
    at = chance.randrange(len(data))
    data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 100)))
    return data


def delay(_random, data):
    """Delays the reply."""
    time.sleep(0.5)
    return data

"""Threads that decode a type of msgspec for the first time at the same moment."""

from __future__ import annotations

import os
import sys
import threading
from datetime import datetime
from typing import Any, Literal

import msgspec

from liza.model.value_classes import decodable

THREADS, KINDS = 8, 40
TEXT = b'{"a": 1, "b": "x", "c": null, "d": {"k": [1]}, "e": "y", "f": [1]}'


def make_kind(number: int) -> Any:
    """A class that no thread has decoded."""
    fields = [
        ("a", int),
        ("b", str | None),
        ("c", datetime | None),
        ("d", dict[str, list[int]]),
        ("e", Literal["x", "y"] | None),
        ("f", tuple[int, ...]),
    ]
    return msgspec.defstruct(f"Kind{number}", fields)


def decode_together(kind: Any) -> None:
    start = threading.Barrier(THREADS)

    def decode() -> None:
        start.wait()
        for _ in range(20):
            msgspec.json.decode(TEXT, type=decodable(kind))

    threads = [threading.Thread(target=decode) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_can_decode_a_new_type_at_once() -> None:
    child = os.fork()
    if child == 0:
        try:
            sys.setswitchinterval(1e-6)
            for number in range(KINDS):
                decode_together(make_kind(number))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

"""Errors of the server's event loop do not fill its log."""

from __future__ import annotations

import asyncio

from liza.api.listener import REPORT_SECONDS, _ErrorReports


class Loop(asyncio.SelectorEventLoop):
    """A loop that keeps what it would write to the log."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def default_exception_handler(self, context: dict) -> None:
        self.written.append(context["message"])


def test_an_error_that_comes_again_and_again_is_reported_once_a_minute() -> None:
    times = iter([0.0, 1.0, 2.0, REPORT_SECONDS - 1, REPORT_SECONDS, REPORT_SECONDS + 1])
    loop = Loop()
    try:
        loop.set_exception_handler(_ErrorReports(lambda: next(times)))
        for message in ("out of descriptors", "other", *["out of descriptors"] * 4):
            loop.call_exception_handler({"message": message})
    finally:
        loop.close()
    assert loop.written == ["out of descriptors", "other", "out of descriptors"]

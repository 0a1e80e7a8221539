"""Run a program as a child in the caller's terminal, and return how it ended."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from liza.rules.errors import ProgramMissing

SIGNAL_BASE = 128
"""A shell reports the end of a program by signal N as exit status 128 + N."""
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""Signals that the terminal sends to the program itself: it is in the same process group."""
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run_child(
    argv: Sequence[str],
    directory: Path,
    env: Mapping[str, str],
    *,
    stdin_text: str | None = None,
    descriptors: Collection[int] = (),
    started: Callable[[int], None] = lambda pid: None,
) -> int:
    """Run the program until it ends; return its exit status, as a shell would report it.

    It has the caller's terminal, or the caller's pipes; ``stdin_text`` is its whole input instead. It inherits
    ``descriptors``. ``started`` gets its pid. Raises ProgramMissing if it cannot be started.
    """
    stdin = None if stdin_text is None else subprocess.PIPE
    with _passing_signals() as pass_to:
        try:
            child = subprocess.Popen(argv, cwd=directory, env=dict(env), stdin=stdin, pass_fds=tuple(descriptors))
        except OSError as error:  # such as a script whose interpreter does not exist, or arguments that are too long
            hint = f"ls -l {shlex.quote(argv[0])}"
            raise ProgramMissing(f"{argv[0]} cannot be started: {error.strerror}", hint) from error
        pass_to(child)
        started(child.pid)
        if child.stdin is not None and stdin_text is not None:
            with suppress(BrokenPipeError), child.stdin:
                child.stdin.write(stdin_text.encode())
        status = child.wait()
    return SIGNAL_BASE - status if status < 0 else status


@contextmanager
def _passing_signals() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Leave signals from the terminal to the program, and forward requests to end to it.

    A signal that arrives before the program runs is sent to it as soon as it does.
    """
    running: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if running:
            running[0].send_signal(number)
        else:
            early.append(number)

    def pass_to(child: subprocess.Popen[bytes]) -> None:
        running.append(child)
        for number in early:
            child.send_signal(number)

    def ignore(number: int, _frame: FrameType | None) -> None:
        """Handle a signal without SIG_IGN, which the program would inherit."""

    handlers: dict[int, Any] = {number: signal.signal(number, ignore) for number in _FROM_TERMINAL}
    handlers |= {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield pass_to
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

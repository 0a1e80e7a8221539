"""Let ``/proc`` show the command line and the environment of the command that a forked process runs, not of its parent.

Both are read from the memory of the process, where execve(2) wrote them: `ps` reads them, and so does a search for
the processes of a run. What does not fit there is cut. Nothing happens without ``/proc``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from liza.system.proc_stat import ARGUMENTS, ENVIRONMENT, read_stat


def show_command(words: Sequence[str]) -> None:
    """Show ``words`` as the command line."""
    _overwrite(ARGUMENTS, words)


def show_environment(environ: Mapping[str, str]) -> None:
    """Show this environment, the variables of Liza first. Call it after the start environment was replaced: C functions
    have pointers into its memory."""
    names = sorted(environ, key=lambda name: not name.lstrip("_").startswith("LIZA_"))
    _overwrite(ENVIRONMENT, [f"{name}={environ[name]}" for name in names])


def _overwrite(addresses: slice, texts: Iterable[str]) -> None:
    """Write NUL-terminated texts between two addresses, as many as fit, and NUL bytes behind them."""
    with suppress(OSError, ValueError):
        start, end = map(int, (read_stat("self") or [])[addresses])
        block = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - start]
        block = block[: block.rfind(b"\0") + 1]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123 - no buffer
            memory.seek(start)
            memory.write(block.ljust(end - start, b"\0"))

"""Run a program of this machine to its end, or kill it at a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def run_limited(
    words: Sequence[str],
    limit: float,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
    data: bytes = b"",
    output: int = subprocess.PIPE,
    running: set[subprocess.Popen[bytes]] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Return the exit status and what the program printed. What it leaves of its process group is killed.

    ``data``: its whole input. ``output``: a descriptor for its output. ``running``: contains the process while it runs.
    Raises TimeoutError after ``limit`` seconds, OSError if it cannot be started.
    """
    process = subprocess.Popen(
        words,
        cwd=directory,
        env=environ,
        stdin=subprocess.PIPE if data else subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        # A session of its own has no terminal: /dev/tty cannot be opened.
        start_new_session=True,
    )
    running = set() if running is None else running
    running.add(process)
    try:
        printed, errors = process.communicate(data or None, limit)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{words[0]} took longer than {limit:g} s") from None
    finally:
        running.discard(process)
        kill_group(process)
        process.wait()
    texts = [(text or b"").decode("utf-8", "replace") for text in (printed, errors)]
    return subprocess.CompletedProcess(words, process.returncode, *texts)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its process group, and the group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)

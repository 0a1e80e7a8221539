"""Start a project command under its guard, which kills everything that the command started."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from liza.model.value_classes import Mutable, field
from liza.system import ancestors

GUARD_SCRIPT = Path(__file__).with_name("_guard.py").resolve()
END_LIMIT = 10.0
"""Seconds that a guard may take to kill what its command started."""


class GuardedCommand(Mutable):
    """A guard and its command. ``alive_fd`` is open while the command may run, and -1 once it is to end."""

    process: subprocess.Popen[bytes]
    alive_fd: int
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def terminate(self) -> None:
        """End the command and everything that it started, and wait for that. Do nothing if it is over."""
        with self._ending:
            if self.alive_fd >= 0:
                os.close(self.alive_fd)
                self.alive_fd = -1
        try:
            self.process.wait(timeout=END_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_guarded(words: Sequence[str], directory: Path, out: IO[bytes], env: Mapping[str, str]) -> GuardedCommand:
    """Start the command with its output to ``out``; ``env`` names its run as LIZA_RUN and LIZA_ROOT. Raises OSError."""
    read_end, alive = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD_SCRIPT), str(read_end), *words],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_hide_run(env),
            start_new_session=True,
            pass_fds=(read_end,),
        )
    except BaseException:
        with suppress(OSError):
            os.close(alive)
        raise
    finally:
        os.close(read_end)
    return GuardedCommand(process, alive)


def _hide_run(env: Mapping[str, str]) -> dict[str, str]:
    """Rename the run's variables: processes with the usual names are killed with the run, and the guard must go
    last."""
    return {
        ancestors.SHIM_PREFIX + name.removeprefix("LIZA_") if name.startswith("LIZA_") else name: value
        for name, value in env.items()
    }

"""Long output through a pager at a terminal, by git's own rules."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from liza.cli.render import printing
from liza.cli.render.columns import strip_controls, strip_controls_but_colours
from liza.repo.config_pins import Pins
from liza.repo.runner import Git

_NO_PAGER = ("", "cat")
_NOT_FOUND = 127


def page_text(text: str, git: Git) -> None:
    """Write a text to stdout; at a terminal through the pager that git would use, with LESS=FRX unless LESS is set.

    ``git`` has what may be executed pinned: a ``core.pager`` that came after `liza init` is not heeded.
    """
    pager = _find_pager(git) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else None
    if not text or pager is None or not _run_pager(pager, text):
        printing.print_text(text)


def _find_pager(git: Git) -> str | None:
    """The command: GIT_PAGER, core.pager as it was pinned, PAGER, less; None for none."""
    named = os.environ.get("GIT_PAGER")
    if named is None:
        named = _pinned_pager(git)
    if named is None:
        named = os.environ.get("PAGER")
    if named is None:
        return _find_less()
    return None if named.strip() in _NO_PAGER else named


def _pinned_pager(git: Git) -> str | None:
    """core.pager as it was on the day of `liza init`; one that came later may be an agent's."""
    values = git.pins.config.get("core.pager", ()) if isinstance(git.pins, Pins) else ()
    return values[-1] if values else None


def _find_less() -> str | None:
    """less in a directory of PATH that is no relative one: an agent may have put a file into this one."""
    ways = os.pathsep.join(way for way in os.get_exec_path() if Path(way).is_absolute())
    return shutil.which("less", path=ways)


def _run_pager(pager: str, text: str) -> bool:
    """Run the pager; False where there is no such program, and nothing was shown."""
    shown = strip_controls_but_colours(text) if printing.wants_colours() else strip_controls(text)
    environ = {"LESS": "FRX", "LV": "-c", **os.environ}
    sys.stdout.flush()
    # Ctrl+C is for the pager: it ends what it shows, or a search, and this waits for it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        words = ["/bin/sh", "-c", pager]
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=environ, preexec_fn=_restore_sigint) as child:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write((shown if shown.endswith("\n") else shown + "\n").encode("utf-8", "replace"))
            with suppress(BrokenPipeError):
                child.stdin.close()
            return child.wait() != _NOT_FOUND
    finally:
        signal.signal(signal.SIGINT, before)


def _restore_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

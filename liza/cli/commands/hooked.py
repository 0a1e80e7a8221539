"""``liza hook``, without anything that takes long to load: a program waits for it at every step."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from liza.system import ancestors
from liza.verbs.hook import LARGEST, Hook


def run(words: Sequence[str]) -> int:
    """Answer one event of a program; the exit code, 0 but for a tool that is not to run. Raises nothing."""
    if len(words) != 2 or not _speaks_for_itself():
        return 0
    hook = Hook(words[0], words[1], _said(), os.environ)
    answer = hook.answer()
    try:
        sys.stdout.write(answer.out)
        sys.stdout.flush()
        sys.stderr.write(answer.err)
        sys.stderr.flush()
    except (OSError, ValueError) as error:
        # Nobody reads it: what was in it comes once more, and Python must not try again at its end.
        hook.note(error)
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return answer.code
    hook.delivered()
    return answer.code


def _speaks_for_itself() -> bool:
    """Whether this is said in a session, and for no other one. In a sandbox nothing above can be seen."""
    run, root = os.environ.get("LIZA_RUN"), os.environ.get("LIZA_ROOT")
    return bool(run and root and ancestors.outermost_run(Path(root)) in (None, run))


def _said() -> bytes:
    """What the program said; nothing where nobody can, as at a terminal."""
    try:
        return b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(LARGEST)
    except (OSError, ValueError):
        return b""

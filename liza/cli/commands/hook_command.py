"""``liza hook``, without anything that takes long to load: a program waits for it at every step."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from liza.system import ancestors
from liza.verbs.hook import MAX_PAYLOAD, Hook


def run_hook(words: Sequence[str]) -> int:
    """Answer one event of a program; the exit code, 0 but for a tool that is not to run. Raises nothing."""
    if len(words) != 2 or not _is_outermost_run():
        return 0
    hook = Hook(words[0], words[1], _read_payload(), os.environ)
    answer = hook.reply()
    try:
        sys.stdout.write(answer.out)
        sys.stdout.flush()
        sys.stderr.write(answer.err)
        sys.stderr.flush()
    except (OSError, ValueError) as error:
        # Nobody reads it: what was in it comes once more, and Python must not try again at its end.
        hook.log_error(error)
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return answer.code
    hook.acknowledge_delivered()
    return answer.code


def _is_outermost_run() -> bool:
    """Whether this is said in a session, and for no other one. In a sandbox nothing above can be seen."""
    run, root = os.environ.get("LIZA_RUN"), os.environ.get("LIZA_ROOT")
    return bool(run and root and ancestors.find_outermost_run(Path(root)) in (None, run))


def _read_payload() -> bytes:
    """What the program said; nothing where nobody can, as at a terminal."""
    try:
        return b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_PAYLOAD)
    except (OSError, ValueError):
        return b""

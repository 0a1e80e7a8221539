"""Record which processes the Python processes of a crew start: a number that does not depend on the load.

PROBE is a ``sitecustomize`` that writes a line for each start. It goes into a directory of PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROBE = '''\
"""Write each start of a process by this interpreter to the file COSTS_LOG."""

import os
import sys
import time

_log = os.open(os.environ["COSTS_LOG"], os.O_WRONLY | os.O_APPEND)


def _write(*words):
    line = "\\0".join([str(os.getpid()), repr(time.monotonic()), *words]) + "\\n"
    os.write(_log, line.encode("utf-8", "surrogateescape"))


def _callers():
    names, frame = [], sys._getframe(2)
    while frame is not None and len(names) < 4:
        name = frame.f_globals.get("__name__", "?")
        if name.startswith("liza.") and name not in ("liza.git.git_start", "liza.git.runner", *names[-1:]):
            names.append(name)
        frame = frame.f_back
    return " ← ".join(names)


def _hear(event, args):
    if event == "subprocess.Popen":
        _write(_callers(), *[os.fsdecode(word).replace("\\n", " ") for word in args[1]])
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"):
        _write(_callers(), event)


sys.addaudithook(_hear)
'''


@dataclass(frozen=True)
class Start:
    """The start of one process by the process ``pid``. ``time`` is that of the monotonic clock.

    ``callers``: the modules of Liza that asked for it, the innermost first.
    """

    pid: int
    time: float
    callers: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return name_process(self.words)


def read_starts(log: Path) -> list[Start]:
    """Return the starts of a probe's log."""
    rows = (line.split("\0") for line in log.read_text(errors="surrogateescape").splitlines())
    return [Start(int(pid), float(moment), callers, tuple(words)) for pid, moment, callers, *words in rows]


_GIT_OPTIONS_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree")
_GROUPS = ("worktree", "stash", "config", "notes", "remote")
"""git commands whose first argument says what they do."""


def name_process(words: Sequence[str]) -> str:
    """Return the name under which a process is counted: ``git worktree add``, or the program and its first words."""
    program = Path(words[0]).name
    if program.startswith("python"):
        return _name_script(words[1:])
    if program != "git":
        return program
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in _GIT_OPTIONS_WITH_VALUE else 1]
    if not rest:
        return " ".join(["git", *words[-1:]])
    second = [word for word in rest[1:2] if rest[0] in _GROUPS and not word.startswith("-")]
    return " ".join(["git", *rest[:1], *second])


def _name_script(words: Sequence[str]) -> str:
    """Return what an interpreter runs: ``python -m liza merge``, or the name of the script."""
    rest = [word for word in words if word not in ("-I", "-S", "-P", "-u", "-B")]
    return " ".join(["python", *rest[:3]]) if rest[:1] == ["-m"] else f"python {Path(*rest[:1]).name}"

"""Count what a command of Liza costs, in numbers that do not depend on the load: modules imported, processes started.

``run_probed`` runs an installed command with a ``sitecustomize`` that writes a line for each import and each process.
An attempt to import a module that does not exist counts as an import. Imports are counted in the process of the
command; processes are also counted in its Python children.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.journeys.crews import BIN

UPDATES = bool(os.environ.get("LIZA_UPDATE_COSTS"))
"""Whether the committed costs are rewritten: `bin/test --update-costs`."""
PROBE = '''\
"""Write each import and each start of a process of this interpreter to the file COSTS_LOG."""

import os
import sys
import time

_log = os.open(os.environ["COSTS_LOG"], os.O_WRONLY | os.O_APPEND)
_modules = {}


def _write(*words):
    line = "\\0".join([str(os.getpid()), repr(time.monotonic()), *words]) + "\\n"
    os.write(_log, line.encode("utf-8", "surrogateescape"))


def _importer():
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None:
        return "?", 0
    return frame.f_globals.get("__name__", "?"), frame.f_lineno


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        importer, line = _importer()
        _write("import", name, importer, str(line))


def _callers():
    names, frame = [], sys._getframe(2)
    while frame is not None and len(names) < 4:
        name = frame.f_globals.get("__name__", "?")
        if name.startswith("liza.") and name not in ("liza.repo.git_start", "liza.repo.runner", *names[-1:]):
            names.append(name)
        frame = frame.f_back
    return " ← ".join(names)


def _hear(event, args):
    if event == "subprocess.Popen":
        _write("start", _callers(), *[os.fsdecode(word).replace("\\n", " ") for word in args[1]])
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"):
        _write("start", _callers(), event)


_write("probe", "loaded")
sys.meta_path.insert(0, _Finder)
sys.addaudithook(_hear)
'''


def _name_script(words: Sequence[str]) -> str:
    """Return what an interpreter runs: ``python -m liza merge``, or the name of the script."""
    rest = [word for word in words if word not in ("-I", "-S", "-P", "-u", "-B")]
    return " ".join(["python", *rest[:3]]) if rest[:1] == ["-m"] else f"python {Path(*rest[:1]).name}"


@dataclass(frozen=True)
class ProbeLine:
    """One line of the probe: ``kind`` is "probe", "import" or "start". ``time`` is that of the monotonic clock.

    ``callers`` of a start: the modules of Liza that asked for it, the innermost first.
    """

    pid: int
    time: float
    kind: str
    words: tuple[str, ...]
    callers: str = ""


def read_probe(log: Path) -> list[ProbeLine]:
    """Return the lines of a probe's log."""
    rows = (line.split("\0") for line in log.read_text(errors="surrogateescape").splitlines())
    return [_parse_line(*row) for row in rows]


def _parse_line(pid: str, moment: str, kind: str, *words: str) -> ProbeLine:
    callers, *rest = words if kind == "start" else ("", *words)
    return ProbeLine(int(pid), float(moment), kind, tuple(rest), callers)


_GIT_OPTIONS_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree")
_GROUPS = ("worktree", "stash", "config", "notes", "remote")
"""git commands whose first argument says what they do."""


@dataclass(frozen=True)
class Costs:
    """What one command did: its imports, each with the importing module and line, and the processes it started."""

    imports: dict[str, tuple[str, int]]
    processes: Counter[str]

    def chain(self, module: str) -> str:
        """Return why a module was imported: ``liza.cli.entry_points:82 → liza.verbs.status:9 → difflib``."""
        links, current = [module], module
        while current in self.imports:
            importer, line = self.imports[current]
            links.append(f"{importer}:{line}")
            if importer == current or len(links) > 40:
                break
            current = importer
        return " → ".join(reversed(links))


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


def run_probed(
    words: Sequence[str], cwd: Path, directory: Path, env: dict[str, str], stdin: str = ""
) -> tuple[Costs, subprocess.CompletedProcess[str]]:
    """Run ``liza`` with these words; ``directory`` holds the probe and its log. Raises AssertionError if it fails."""
    (directory / "sitecustomize.py").write_text(PROBE)
    log = directory / "costs.log"
    log.write_text("")
    process = subprocess.Popen(
        [str(BIN / "liza"), *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(directory), "COSTS_LOG": str(log), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(stdin, timeout=90)
    assert process.returncode == 0, f"liza {words} ended with {process.returncode}\n{out}{err}"
    lines = read_probe(log)
    own = [line for line in lines if line.pid == process.pid]
    assert [line.kind for line in own[:1]] == ["probe"], "the probe was not loaded into the command"
    imports = {line.words[0]: (line.words[1], int(line.words[2])) for line in reversed(own) if line.kind == "import"}
    processes = Counter(name_process(line.words) for line in lines if line.kind == "start")
    return Costs(imports, processes), subprocess.CompletedProcess(words, 0, out, err)


def split_imports(costs: Costs) -> tuple[set[str], set[str], set[str]]:
    """Return the modules of Liza, the names of packages from outside, and the modules of the standard library.

    Packages are counted as a whole: which modules they consist of changes with their version.
    """
    own = {name for name in costs.imports if name.partition(".")[0] == "liza"}
    top = {name: name.partition(".")[0] for name in costs.imports.keys() - own}
    library = {name for name, package in top.items() if package in sys.stdlib_module_names}
    packages = {package for name, package in top.items() if name not in library}
    return own, packages, library

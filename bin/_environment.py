"""Create the private environment of ``bin/liza``, ``bin/liza-agent`` and ``bin/test``.

``_environment.py ROOT ENV_DIR WHAT``: ROOT is the checkout, ENV_DIR is ``ROOT/.liza-venv/<checksum of pyproject.toml>``
and WHAT is ``run``, ``test`` or ``mutation``. Only the standard library is used: nothing is installed yet.

An environment cannot be moved, so it is created in place, under a file lock that the system releases if its holder
dies. The stamp is written last: an environment without a stamp is incomplete, and the next start creates it again. A
changed pyproject.toml gets a new environment beside the old one: running processes keep the files of the old one.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEPT = 2
"""Number of environments that are kept: the current one and the one before."""

MISSING, REFUSED = 5, 1


class CannotGoOn(Exception):
    """Error with a message, an advice and an exit code."""

    def __init__(self, message: str, advice: str, code: int) -> None:
        super().__init__(message)
        self.message, self.advice, self.code = message, advice, code


def say(line: str) -> None:
    sys.stderr.write(f"liza: {line}\n")
    sys.stderr.flush()


@dataclass(frozen=True)
class Way:
    """The commands that create and fill an environment, without their target and the packages.

    ``install_tools`` fills a test environment. Bytecode of the tools is written when they are imported: to compile all
    of them takes a third of pip's time. ``get_uv``: installs uv for that first, if this machine has none.
    """

    create: list[str]
    install: list[str]
    install_tools: list[str]
    get_uv: list[str] | None = None


def ways(env_dir: Path, what: str) -> list[Way]:
    """Return the ways to create ``env_dir`` here, best first. Raises CannotGoOn if there is none, or without git.

    uv fills a test environment in 2 s, pip 23 in 25 s: it is worth the 3 s to install uv, in a directory of its own.
    """
    if shutil.which("git") is None:
        raise CannotGoOn("git is not installed", "Debian, Ubuntu: sudo apt install git", MISSING)
    # The interpreter's real file: a version manager may change its symlinks later.
    interpreter, target = str(Path(sys.executable).resolve()), str(env_dir / "bin" / "python")
    candidates = []
    uv = shutil.which("uv")
    if uv is not None:
        install = [uv, "pip", "install", "-q", "--python", target]
        candidates.append(Way([uv, "venv", "-q", "--python", interpreter], install, install))
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if "venv" not in missing and reaches_into_others(interpreter):
        venv = [interpreter, "-I", "-m", "venv", "--without-pip"]
        pip = [interpreter, "-I", "-m", "pip", "--python", target, "install", "-q"]
        if uv is None and what != "run":
            own = env_dir / "uv"
            install = [str(own / "bin" / "uv"), "pip", "install", "-q", "--python", target]
            get_uv = [*pip, "--no-compile", "--upgrade", "--target", str(own), "uv"]
            candidates.append(Way(venv, install, install, get_uv))
        candidates.append(with_pip(venv, pip))
    elif not missing:
        candidates.append(with_pip([interpreter, "-I", "-m", "venv"], [target, "-I", "-m", "pip", "install", "-q"]))
    if not candidates:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        raise CannotGoOn(
            f"this Python ({sys.executable}) has no {' and no '.join(missing)}, so it cannot create an environment",
            f"Debian, Ubuntu: sudo apt install {package} (or python3-venv)",
            MISSING,
        )
    return candidates


def with_pip(create: list[str], install: list[str]) -> Way:
    return Way(create, install, [*install, "--no-compile"])


def reaches_into_others(interpreter: str) -> bool:
    """Whether this Python's pip can fill an environment without pip: twice as fast as installing pip into it."""
    result = subprocess.run([interpreter, "-I", "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"pip (\d+)\.(\d+)", result.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= (22, 3)


@contextmanager
def only_one(home: Path) -> Iterator[int]:
    """Hold the lock of ``.liza-venv`` and yield its descriptor; print a line before waiting for another process.

    A step that inherits the descriptor keeps the lock if this process is killed while the step still runs.
    """
    try:
        home.mkdir(exist_ok=True)
        handle = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        advice = "clone to a place that you can write to, or install it: uv tool install, pipx install"
        raise CannotGoOn(f"{home} cannot be written: {error.strerror}", advice, MISSING) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is creating the environment; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


GROUPS = {"run": [], "test": ["dev", "docs"], "mutation": ["dev", "docs", "mutation"]}
"""The groups of pyproject.toml that an environment has."""


def tools_of(root: Path, what: str) -> list[str]:
    """Return the tools of an environment. pyproject.toml is read here: older versions of pip do not know groups."""
    groups = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("dependency-groups", {})
    return [tool for group in GROUPS[what] for tool in groups.get(group, []) if isinstance(tool, str)]


def run(argv: Sequence[str], root: Path, lock: int) -> None:
    """Run one step, which inherits the lock. Its output is shown only if it fails. Raises CannotGoOn."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONNOUSERSITE": "1"}
    for name in ("PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"):
        environment.pop(name, None)
    result = subprocess.run(
        argv, cwd=root, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", pass_fds=(lock,),
    )  # fmt: skip
    if result.returncode != 0:
        sys.stderr.write(result.stdout[-4000:])
        step = " ".join(argv[:4])
        advice = "its output is above; the package index is configured as usual for pip and uv"
        raise CannotGoOn(f"set-up failed in: {step} … (exit {result.returncode})", advice, REFUSED)


def is_made(root: Path, env_dir: Path, what: str) -> bool:
    stamp = env_dir / f"stamp-{what}"
    made_for = stamp.read_text(encoding="utf-8").rstrip("\n") if stamp.is_file() else None
    return made_for == str(root) and (env_dir / "bin" / "python").exists()


def make(root: Path, env_dir: Path, what: str, way: Way, lock: int) -> None:
    """Create ``env_dir``, or add the test tools to a complete one. The stamp is written last."""
    tools = tools_of(root, what)
    if not is_made(root, env_dir, "run"):
        if env_dir.exists():
            shutil.rmtree(env_dir)
        run([*way.create, str(env_dir)], root, lock)
    if way.get_uv is not None:
        run(way.get_uv, root, lock)
    install = way.install_tools if tools else way.install
    run([*install, "-e", f"{root}[ui,web]", *tools], root, lock)  # With the pictures: the README shows them first.
    for name in ("run", what):
        write_stamp(env_dir / f"stamp-{name}", root)


def write_stamp(stamp: Path, root: Path) -> None:
    temporary = stamp.with_suffix(".new")
    temporary.write_text(f"{root}\n", encoding="utf-8")
    temporary.rename(stamp)


def forget_old(home: Path, current: Path) -> None:
    """Keep the KEPT newest environments, delete the others."""
    current.touch()
    environments = sorted((path for path in home.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in environments[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def main(root: Path, env_dir: Path, what: str) -> None:
    candidates = ways(env_dir, what)
    with only_one(env_dir.parent) as lock:
        if is_made(root, env_dir, what):
            return  # another process made it while this one waited
        task = "adding the test tools to" if is_made(root, env_dir, "run") else "making"
        say(f"{task} a private Python environment, {env_dir} (once; some seconds)")
        for way in candidates:
            try:
                make(root, env_dir, what, way, lock)
                break
            except CannotGoOn as error:
                if way is candidates[-1]:
                    raise
                # uv does not read pip's settings: an index that is set only for pip is used by the second try.
                say(f"{error.message}; trying again with pip")
        forget_old(env_dir.parent, env_dir)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except CannotGoOn as why:
        say(f"{why.message}\n  {why.advice}")
        sys.exit(why.code)
    except KeyboardInterrupt:
        say("interrupted; run the same command again")
        sys.exit(128 + signal.SIGINT)

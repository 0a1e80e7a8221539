"""Make the private environment that ``bin/liza``, ``bin/liza-agent`` and ``bin/test`` run in.

``_environment.py ROOT ENV_DIR WHAT``: ROOT is the checkout, ENV_DIR is ``ROOT/.liza-venv/<checksum of pyproject.toml>``
and WHAT is ``run`` or ``test``. Standard library only: nothing is installed yet when this runs.

An environment cannot be moved, so it is made in place, under a lock that the system lets go of when its holder dies.
The stamp is written last: without it the environment never happened and the next start makes it again. A changed
pyproject.toml gets an environment of its own beside the old one: what still runs in the old one keeps its files.
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
"""How many environments stay: the one in use and the one before it."""

MISSING, REFUSED = 5, 1


class CannotGoOn(Exception):
    """What is wrong, what to do about it, and the exit code."""

    def __init__(self, what: str, advice: str, code: int) -> None:
        super().__init__(what)
        self.what, self.advice, self.code = what, advice, code


def say(line: str) -> None:
    sys.stderr.write(f"liza: {line}\n")
    sys.stderr.flush()


@dataclass(frozen=True)
class Way:
    """How an environment is made and filled: the commands, without what they make and what they install."""

    create: list[str]
    install: list[str]


def ways(env_dir: Path) -> list[Way]:
    """What can make ``env_dir`` here, the best first. Raises CannotGoOn where nothing can, or where git is missing."""
    if shutil.which("git") is None:
        raise CannotGoOn("git is not installed", "Debian, Ubuntu: sudo apt install git", MISSING)
    # The interpreter's real file: a link through a version manager may point elsewhere tomorrow.
    this, made = str(Path(sys.executable).resolve()), str(env_dir / "bin" / "python")
    found = []
    uv = shutil.which("uv")
    if uv is not None:
        found.append(Way([uv, "venv", "-q", "--python", this], [uv, "pip", "install", "-q", "--python", made]))
    without = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if "venv" not in without and reaches_into_others(this):
        venv = [this, "-I", "-m", "venv", "--without-pip"]
        found.append(Way(venv, [this, "-I", "-m", "pip", "--python", made, "install", "-q"]))
    elif not without:
        found.append(Way([this, "-I", "-m", "venv"], [made, "-I", "-m", "pip", "install", "-q"]))
    if not found:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        raise CannotGoOn(
            f"this Python ({sys.executable}) has no {' and no '.join(without)}, so it cannot make an environment",
            f"Debian, Ubuntu: sudo apt install {package} (or python3-venv)",
            MISSING,
        )
    return found


def reaches_into_others(interpreter: str) -> bool:
    """Whether this Python's own pip can fill an environment that has none: half the time of giving it one."""
    asked = subprocess.run([interpreter, "-I", "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"pip (\d+)\.(\d+)", asked.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= (22, 3)


@contextmanager
def only_one(home: Path) -> Iterator[int]:
    """Hold the lock of ``.liza-venv``; say so when another process has it. The lock is the descriptor that it gives:
    a step that inherits it keeps the lock, should this process be killed and leave the step at work."""
    try:
        home.mkdir(exist_ok=True)
        handle = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as why:
        advice = "clone to a place that you can write to, or install it: uv tool install, pipx install"
        raise CannotGoOn(f"{home} cannot be written: {why.strerror}", advice, MISSING) from why
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is making the environment; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def dev_tools(root: Path) -> list[str]:
    """The dev group of pyproject.toml. Read here, because older pips know no groups."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return [tool for tool in table.get("dependency-groups", {}).get("dev", []) if isinstance(tool, str)]


def run(argv: Sequence[str], root: Path, lock: int) -> None:
    """One step, which holds the lock too. Its output is shown only when it fails. Raises CannotGoOn."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONNOUSERSITE": "1"}
    for name in ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"):
        environment.pop(name, None)
    done = subprocess.run(
        argv, cwd=root, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", pass_fds=(lock,),
    )  # fmt: skip
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-4000:])
        step = " ".join(argv[:4])
        advice = "its last words are above; which package index is asked is set as for pip and uv everywhere"
        raise CannotGoOn(f"setting up failed in: {step} … (exit {done.returncode})", advice, REFUSED)


def is_made(root: Path, env_dir: Path, what: str) -> bool:
    stamp = env_dir / f"stamp-{what}"
    made_for = stamp.read_text(encoding="utf-8").rstrip("\n") if stamp.is_file() else None
    return made_for == str(root) and (env_dir / "bin" / "python").exists()


def make(root: Path, env_dir: Path, what: str, way: Way, lock: int) -> None:
    """Make ``env_dir`` from nothing, or add the test tools to a finished one; the stamp comes last."""
    tools = dev_tools(root) if what == "test" else []
    if not is_made(root, env_dir, "run"):
        if env_dir.exists():
            shutil.rmtree(env_dir)
        run([*way.create, str(env_dir)], root, lock)
    run([*way.install, "-e", str(root), *tools], root, lock)
    for name in ("run", what):
        write_stamp(env_dir / f"stamp-{name}", root)


def write_stamp(stamp: Path, root: Path) -> None:
    aside = stamp.with_suffix(".new")
    aside.write_text(f"{root}\n", encoding="utf-8")
    aside.rename(stamp)


def forget_old(home: Path, current: Path) -> None:
    """Keep the newest environments; a pyproject.toml of long ago does not come back often."""
    current.touch()
    made = sorted((path for path in home.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in made[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def main(root: Path, env_dir: Path, what: str) -> None:
    able = ways(env_dir)
    with only_one(env_dir.parent) as lock:
        if is_made(root, env_dir, what):
            return  # another process made it while this one waited
        task = "adding the test tools to" if is_made(root, env_dir, "run") else "making"
        say(f"{task} a private Python environment, {env_dir} (once; some seconds)")
        for way in able:
            try:
                make(root, env_dir, what, way, lock)
                break
            except CannotGoOn as why:
                if way is able[-1]:
                    raise
                # uv does not read pip's settings: an index that only pip knows of is found on the second try.
                say(f"{why.what}; trying again with pip")
        forget_old(env_dir.parent, env_dir)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except CannotGoOn as why:
        say(f"{why.what}\n  {why.advice}")
        sys.exit(why.code)
    except KeyboardInterrupt:
        say("stopped; the same command starts again where nothing was finished")
        sys.exit(128 + signal.SIGINT)

"""How this Liza was installed: the path and the command line of the running Liza, which agents and mergers get, and the
commands that add packages to it, upgrade it or install it again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from liza.model.errors import Missing
from liza.system import ancestors

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "liza"


def install_command(*requirements: str) -> str:
    """Return the command that installs packages into the environment of this process."""
    if _has_file("pipx_metadata.json"):
        options = [f"--pip-args={word}" for word in requirements if word.startswith("-")]
        packages = [word for word in requirements if not word.startswith("-")]
        return shlex.join(["pipx", "inject", *options, Path(sys.prefix).name, *packages])
    if find_spec("pip") is None and shutil.which("uv"):
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *requirements])
    get_pip = "" if find_spec("pip") else f"{shlex.join([sys.executable, '-m', 'ensurepip'])} && "
    return get_pip + shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def extra_command(extra: str) -> str:
    """Return the command that installs the packages of an extra. They are named themselves: a package index need not
    have this project.
    """
    package = _find_distribution()
    required = [] if package is None else package.requires or []
    rows = (re.fullmatch(rf"(.+?)\s*;.*\bextra == ['\"]{extra}['\"]", row) for row in required)
    return install_command(*(row[1] for row in rows if row))


def upgrade_command() -> str:
    """Return the command that upgrades this Liza."""
    source, is_editable = _read_source()
    if is_editable:
        return shlex.join(["git", "-C", source, "pull"])
    if _has_file("pipx_metadata.json"):
        return shlex.join(["pipx", "upgrade", Path(sys.prefix).name])
    if _has_file("uv-receipt.toml"):
        return shlex.join(["uv", "tool", "upgrade", Path(sys.prefix).name])
    return install_command("--upgrade", source)


def reinstall_command() -> str:
    """Return the command that installs this Liza again, because a part of it is missing."""
    source, is_editable = _read_source()
    if _has_file("pipx_metadata.json"):
        return shlex.join(["pipx", "reinstall", Path(sys.prefix).name])
    return install_command("--force-reinstall", *(["-e"] if is_editable else []), source)


def _find_distribution() -> Distribution | None:
    """Return the metadata of this package; None if it was not installed."""
    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None


def _has_file(name: str) -> bool:
    """Return whether the tool that created the environment left this file in it."""
    return (Path(sys.prefix) / name).is_file()


def _read_source() -> tuple[str, bool]:
    """Return what this Liza was installed from, a path, a URL or its name, and whether it is a checkout in use."""
    package = _find_distribution()
    record = {} if package is None else json.loads(package.read_text("direct_url.json") or "{}")
    url, vcs = str(record.get("url", NAME)), record.get("vcs_info", {}).get("vcs")
    source = f"{vcs}+{url}" if vcs else url.removeprefix("file://")
    return source, bool(record.get("dir_info", {}).get("editable"))


_COMMAND = re.compile(r"(?:^|(?<=[;&|(:`] )|(?<=[(`]))liza(?= )")


def liza_path() -> Path:
    """Absolute path of the ``liza`` command of the running installation. Raises Missing."""
    candidate = Path(sys.executable).parent / "liza"
    if candidate.is_file():
        return candidate

    match = shutil.which("liza")
    if match is None:
        message = "the liza command is not beside the Python that runs it, nor on PATH"
        raise Missing(message, reinstall_command())
    return Path(match).absolute()


def liza_argv() -> tuple[str, ...]:
    """Command line that starts this Liza from another process."""
    # -P: without it Python would import modules from the current directory, which is the person's checkout.
    return (sys.executable, "-P", "-m", "liza")


def sidecar_argv(run_dir: Path) -> tuple[str, ...]:
    """Command line of the ACP sidecar of a run. It is started in the worktree, see ``liza_argv``."""
    return (sys.executable, "-P", "-m", "liza.api.acp", str(run_dir))


def qualify_command(command: str) -> str:
    """Replace ``liza`` with its absolute path in a suggested command, if called inside a session that needs the path.

    The PATH of a session contains the directory, but a login shell, in which some programs run commands, resets PATH.
    That of a caller in a box is not known here.
    """
    if not os.environ.get("LIZA_RUN"):
        return command
    try:
        path = liza_path()
    except Missing:
        return command
    if not ancestors.is_called_from_box() and _is_on_path(path):
        return command
    return _COMMAND.sub(lambda _: shlex.quote(str(path)), command)


def _is_on_path(path: Path) -> bool:
    """Whether the first ``liza`` on PATH is this file. A relative directory depends on where a command runs."""
    with suppress(OSError):
        for directory in map(Path, os.get_exec_path()):
            candidate = directory / "liza"
            if not directory.is_absolute() or candidate.is_file():
                return directory.is_absolute() and candidate.samefile(path)
    return False

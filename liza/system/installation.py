"""How this Liza was installed, and the commands that add packages to it, upgrade it or install it again."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

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

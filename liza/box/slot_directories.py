"""Create, empty and remove the directories that the boxes of a slot have for themselves; mount what a person shares.

HOME is read-only in a box. The caches are of the slot: one that all slots write could be poisoned by one agent for all.
A box cannot write the directory that contains them, only their content: no link can take the place of one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.box.box import Mount, MountKind
from liza.box.run_mounts import NPM_SETTINGS
from liza.box.surroundings import list_private_directories
from liza.model.errors import NotRegularFile, SystemRefused
from liza.model.paths import BOXES, BoxPaths, Paths
from liza.system import program_path, untrusted_files

_SECRET_SETTING: Final = re.compile(r"\s*(//.*:)?(_authToken|_auth|_password|username|certfile|keyfile|key|otp)\s*=")


def prepare_directories(paths: Paths, slot: str, home: Path) -> BoxPaths:
    """Create what the boxes of a slot have for themselves, with an empty /tmp. Return its paths.

    For the start of a session: boxes that live in the slot lose their files in /tmp. Raises OSError, SystemRefused.
    """
    own = create_directories(paths, slot, home)
    remove_tree(own.tmp)
    _make_directory(own.tmp)
    return own


def create_directories(paths: Paths, slot: str, home: Path) -> BoxPaths:
    """Create what is missing of ``prepare_directories``, for a box beside others. Raises OSError, SystemRefused."""
    own = paths.box(slot)
    for directory in list_private_directories(home):
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in (own.directory.parent, own.directory, own.tmp, own.liza, own.cache, own.state):
        _make_directory(directory)
    (own.directory / NPM_SETTINGS).write_text(_without_secrets(_read_settings(home / ".npmrc")))
    return own


def remove_directories(paths: Paths, slot: str) -> None:
    """Remove what the boxes of a slot had for themselves. Raises OSError, SystemRefused."""
    remove_tree(paths.box(slot).directory)


def remove_all(paths: Paths) -> None:
    """As ``remove_directories``, for all slots of the crew."""
    remove_tree(paths.slots / BOXES)


def remove_tree(path: Path) -> None:
    """Remove a file or a tree that a box wrote: directories may be very deep, or without permissions.

    Links are not followed. Idempotent. Raises SystemRefused.
    """
    if not os.path.lexists(path):
        return
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if os.path.lexists(path):
            words = [program_path.find_program(command[0]), *command[1:], "--", str(path)]
            subprocess.run(words, capture_output=True, check=False)
    if os.path.lexists(path):
        raise SystemRefused(f"{path} cannot be removed", "liza doctor")


def _make_directory(path: Path) -> None:
    """Create a directory that only this user can read. What is there instead, such as a link, is removed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        path.mkdir(mode=0o700)


def _read_settings(path: Path) -> str:
    try:
        return untrusted_files.read(path, follow_links=True).decode("utf-8", "replace")
    except (OSError, NotRegularFile):
        return ""


def _without_secrets(settings: str) -> str:
    """Return settings of npm without tokens and passwords, except those that name a variable of the environment."""
    lines = settings.splitlines(keepends=True)
    return "".join(line for line in lines if not _SECRET_SETTING.match(line) or "${" in line)


_CACHES: Final = {
    "XDG_CACHE_HOME": (".cache", "."),
    "UV_CACHE_DIR": (".cache/uv", "uv"),
    "PIP_CACHE_DIR": (".cache/pip", "pip"),
    "PRE_COMMIT_HOME": (".cache/pre-commit", "pre-commit"),
    "npm_config_cache": (".npm", "npm"),
    "npm_config_store_dir": (".local/share/pnpm/store", "pnpm"),
    "pnpm_config_store_dir": (".local/share/pnpm/store", "pnpm"),
    "YARN_GLOBAL_FOLDER": (".yarn/berry", "yarn-berry"),
    "BUN_INSTALL_CACHE_DIR": (".bun/install/cache", "bun"),
    "GOCACHE": (".cache/go-build", "go-build"),
    "GOMODCACHE": ("go/pkg/mod", "go-mod"),
    "CARGO_HOME": (".cargo", "cargo"),
    "GRADLE_USER_HOME": (".gradle", "gradle"),
    "NUGET_PACKAGES": (".nuget/packages", "nuget"),
    "DOTNET_CLI_HOME": (".dotnet", "dotnet"),
}
"""By variable: the usual directory in the home directory, and the directory in the cache of the slot."""
_READ_ONLY_CACHES: Final = ("ms-playwright", "huggingface", "torch", "puppeteer", "Cypress")
"""Parts of ~/.cache that an installation filled and tests only read: a new cache of a slot has links to them."""
_READ_ONLY_FILES: Final = {"cargo/config.toml": ".cargo/config.toml"}
_RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
"""Names a directory below /run, which a box does not show."""


def resolve_shared(texts: Sequence[str]) -> tuple[Path, ...]:
    """Return the real paths that ``config.shared`` names: nothing can be mounted at a link."""
    return tuple(Path(text).expanduser().resolve() for text in texts)


def make_box_environment(
    environ: Mapping[str, str], own: BoxPaths, home: Path, shared: Sequence[Path] = ()
) -> dict[str, str]:
    """Return the environment of a process in a box of a slot. ``shared``: paths that a person shares with all slots."""
    variables = {"TMPDIR": "/tmp"} if environ.get("TMPDIR") else {}
    for name, (usual, directory) in _CACHES.items():
        current = Path(environ.get(name) or home / usual)
        is_shared = any(current.resolve().is_relative_to(path) for path in shared)
        variables[name] = str(current if is_shared else own.cache / directory)
    runtime = environ.get(_RUNTIME_VARIABLE)
    if runtime and not any(path.is_relative_to(runtime) for path in shared):
        environ = {name: value for name, value in environ.items() if name != _RUNTIME_VARIABLE}
    return {**environ, **variables}


def fill_cache(own: BoxPaths, environ: Mapping[str, str], home: Path) -> None:
    """Link what tests only read into the new cache of a slot. One with content is left as it is: an agent may have
    written links there. Raises OSError."""
    if any(own.cache.iterdir()):
        return
    usual = _cache_home(environ, home)
    links = {name: usual / name for name in _READ_ONLY_CACHES}
    links |= {name: home / file for name, file in _READ_ONLY_FILES.items()}
    for name, target in links.items():
        if target.exists():
            link = own.cache / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(target)


def share_mounts(own: BoxPaths, environ: Mapping[str, str], home: Path, shared: Sequence[Path]) -> tuple[Mount, ...]:
    """Return the mounts of the existing paths that a person shares: directories can be written, files and sockets only
    be read. A part of ~/.cache is also seen in the cache of the slot."""
    return tuple(_share_mounts(own, _cache_home(environ, home), shared))


def _share_mounts(own: BoxPaths, caches: Path, shared: Sequence[Path]) -> Iterator[Mount]:
    for path in shared:
        if path.exists():
            kind = MountKind.WRITABLE if path.is_dir() else MountKind.READ_ONLY
            yield Mount(kind, path)
            if caches in path.parents:
                yield Mount(kind, own.cache / path.relative_to(caches), path)


def _cache_home(environ: Mapping[str, str], home: Path) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache").resolve()

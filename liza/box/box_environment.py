"""What package managers and a person's shares need in a box: variables, a cache of the slot, mounts.

HOME is read-only there. The caches are of the slot: one that all slots write could be poisoned by one agent for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from liza.box.box import Mount, MountKind
from liza.model.paths import BoxPaths

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

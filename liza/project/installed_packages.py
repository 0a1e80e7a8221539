"""Compare the Python packages of environments with their records, and list them.

An agent that debugs a dependency edits the installed file. If the environment is shared, or an installer linked the
file from its cache, other slots and the person's environment have the edit too. The tests then test it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from liza.git.runner import Git
from liza.model.value_classes import Value
from liza.project.rules import package_records
from liza.project.rules.package_records import ChangedPackageFile, InstalledPackage

_MARKER = "pyvenv.cfg"
_ALGORITHMS = frozenset(("sha256", "sha384", "sha512"))


class _Recorded(Value):
    """A file of packages, with its digest in each record that has it. Two packages can install the same file."""

    path: str
    name: str
    digests: Mapping[str, InstalledPackage]


def find_changed_files(git: Git, environment: str | None) -> tuple[ChangedPackageFile, ...]:
    """Return the installed files that differ from their records, in the environments that commands of a slot use.

    These are the environments in the slot of ``git``, and ``environment``, which is ``config.environment``. Raises
    GitFailed, OSError.
    """
    own = git.directory.resolve()
    recorded: list[_Recorded] = []
    for path in _find_environments(git):
        real = path.resolve()
        is_shared = not real.is_relative_to(own)  # a link leads out of the slot
        recorded += _read_environment(path, str(real if is_shared else path.relative_to(git.directory)), is_shared)
    if environment is not None:
        recorded += _read_environment(Path(environment), environment, True)
    return tuple(sorted(_compare(recorded), key=lambda file: file.name))


def list_packages(environment: str) -> tuple[str, ...]:
    """Return the names in ``site-packages`` of an environment, sorted. Raises OSError."""
    names = {entry.name for site in _find_sites(Path(environment)) for entry in os.scandir(site)}
    return tuple(sorted(name for name in names if name != "__pycache__" and not name.startswith("~")))


def digest_packages(environment: str | None) -> str:
    """Return a digest of the packages in ``config.environment``; empty without one. Raises OSError."""
    return "" if environment is None else package_records.packages_digest(list_packages(environment))


def _find_environments(git: Git) -> Iterator[Path]:
    """Yield the environments in a slot: untracked directories, and directories in these such as ``.tox/py311``."""
    for name in git.names("ls-files", "--others", "--directory", "-z"):
        path = git.directory / name.rstrip("/")
        if not path.is_dir():
            continue
        if (path / _MARKER).is_file():
            yield path
        elif not path.is_symlink():
            yield from (inner for inner in sorted(path.iterdir()) if (inner / _MARKER).is_file())


def _find_sites(environment: Path) -> tuple[Path, ...]:
    """Return the ``site-packages`` directories. ``lib64`` is often a link to ``lib``."""
    return tuple(sorted({site.resolve() for site in environment.glob("lib*/*/*-packages")}))


def _read_environment(environment: Path, label: str, is_shared: bool) -> list[_Recorded]:
    top = str(environment.resolve())
    files: dict[str, dict[str, InstalledPackage]] = {}
    names: dict[str, str] = {}
    for site in _find_sites(environment):
        for info in sorted(site.glob("*.dist-info")):
            package = InstalledPackage(
                *package_records.split_package(info.name), _read_text(info / "INSTALLER").strip(), label, is_shared
            )
            if package.installer in package_records.UNRECORDED_INSTALLERS:
                continue
            for name, digest in package_records.read_record(_read_text(info / "RECORD")).items():
                if digest.partition("=")[0] not in _ALGORITHMS:
                    continue
                is_outside = name.startswith(("..", "/"))  # a script, or a file that the package has in the environment
                path = os.path.normpath(f"{site}/{name}") if is_outside else f"{site}/{name}"
                files.setdefault(path, {})[digest] = package
                names[path] = os.path.relpath(path, top) if is_outside else name
    return [_Recorded(path, names[path], digests) for path, digests in files.items()]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _compare(recorded: Sequence[_Recorded]) -> list[ChangedPackageFile]:
    changed = []
    for file in recorded:
        package = next(iter(file.digests.values()))
        content = _read_regular(file.path)
        if content is None:
            changed.append(ChangedPackageFile(file.name, package, is_gone=True))
        elif not any(_digest(content, digest.partition("=")[0]) == digest for digest in file.digests):
            changed.append(ChangedPackageFile(file.name, package))
    return changed


def _digest(content: bytes, algorithm: str) -> str:
    value = hashlib.new(algorithm, content, usedforsecurity=False).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(value).rstrip(b'=').decode()}"


def _read_regular(path: str) -> bytes | None:
    """Return the content of a regular file; None if it does not exist. Opening a FIFO or a device does not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        return stream.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None

"""Records of installed Python packages: which files differ from them, and what follows for a merge. Pure."""

from __future__ import annotations

import csv
import hashlib
import shlex
from collections.abc import Iterable, Sequence

from liza.model.gates import GateFinding, GateFindingKind
from liza.model.value_classes import Value
from liza.project.rules import tree_changes

UNRECORDED_INSTALLERS = frozenset(("conda",))
"""Installers that change files, such as paths in scripts and texts, after the record was written."""
_CACHE_COMMANDS = {"uv": "uv cache clean {package}"}
"""By installer: the command that removes a package from a cache of unpacked files."""
_SHARED_COMMANDS = {"uv": "uv pip install --python {python} --reinstall --no-deps {requirement}"}
_PIP_COMMAND = "{python} -m pip install --force-reinstall --no-deps {requirement}"
_MAX_NAMES = 3  # files or packages that a message names


class InstalledPackage(Value):
    """A package of an environment. ``environment`` is the path of the environment as people write it. ``is_shared``:
    the environment is outside of the slot. ``installer`` is the program that installed it, or empty."""

    name: str
    version: str
    installer: str
    environment: str
    is_shared: bool = False


class ChangedPackageFile(Value):
    """A file that differs from the record of its package, or is gone. ``name`` is the path below ``site-packages``, or
    below the environment."""

    name: str
    package: InstalledPackage
    is_gone: bool = False


def read_record(text: str) -> dict[str, str]:
    """Return the digests in a ``RECORD``: path relative to ``site-packages`` → ``algorithm=digest``.

    Entries without a digest and compiled modules, which Python writes itself, are left out.
    """
    rows = (row for row in csv.reader(text.splitlines()) if len(row) > 1)
    return {row[0]: row[1] for row in rows if "=" in row[1] and not row[0].endswith(".pyc")}


def split_package(info: str) -> tuple[str, str]:
    """Return the name and the version of a package by the name of its ``.dist-info`` directory."""
    name, _, version = info.removesuffix(".dist-info").partition("-")
    return name, version


def packages_digest(entries: Iterable[str]) -> str:
    """Return a digest of the names in ``site-packages``. A name of a ``.dist-info`` directory contains the version."""
    return hashlib.sha256("\n".join(sorted(entries)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def select_refused(files: Sequence[ChangedPackageFile], allowed: Sequence[str]) -> tuple[ChangedPackageFile, ...]:
    """Return the files that match no pattern of ``config.installed_changes``."""
    return tuple(file for file in files if not tree_changes.matches(file.name, allowed))


def judge_packages(files: Sequence[ChangedPackageFile], allowed: Sequence[str]) -> tuple[GateFinding, ...]:
    """Return what follows from files that differ from the records of their packages.

    Nothing is red: no task is to blame. The environment of a slot was made anew before, so its files differ because of
    the set-up or of a cache. The person and all agents use a shared environment.
    """
    refused = select_refused(files, allowed)
    accepted = [file for file in files if file not in refused]
    findings = []
    if refused:
        text = f"{describe_files(refused)} not as installed"
        findings.append(GateFinding(GateFindingKind.UNTESTED, text, suggest_repair(refused[0])))
    if accepted:
        findings.append(GateFinding(GateFindingKind.REMARK, f"{describe_files(accepted)} not as installed"))
    return tuple(findings)


def describe_files(files: Sequence[ChangedPackageFile]) -> str:
    """Return the names of the files with the first package, its environment and the verb."""
    package = files[0].package
    verb = "is" if len(files) == 1 else "are"
    where = f"{package.name} {package.version} in {package.environment}"
    return f"{_join_names([file.name for file in files])} ({where}) {verb}"


def suggest_repair(file: ChangedPackageFile) -> str:
    """Return the command that restores the file; the one that allows the change if only the set-up can have made it."""
    package = file.package
    if package.is_shared:
        command = _SHARED_COMMANDS.get(package.installer, _PIP_COMMAND)
        python = shlex.quote(f"{package.environment}/bin/python")
        return command.format(python=python, requirement=shlex.quote(f"{package.name}=={package.version}"))
    if package.installer in _CACHE_COMMANDS:
        return _CACHE_COMMANDS[package.installer].format(package=shlex.quote(package.name))
    return allow_command((file,))


def allow_command(files: Sequence[ChangedPackageFile]) -> str:
    """Return the command by which a person allows that these files differ from the records."""
    patterns = tree_changes.propose_patterns([file.name for file in files])
    return f"liza config set installed_changes {shlex.quote(','.join(patterns))}"


def _join_names(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")

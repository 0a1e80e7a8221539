"""What a project's commands changed in the tracked files of a worktree, and what follows for a merge. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from liza.config.rules import breakage
from liza.model.gates import GateFinding, GateFindingKind
from liza.model.value_classes import Value, replace
from liza.project.rules.lock_files import LOCK_COMMANDS

_EXPECTED_DIRECTORIES = frozenset(("__snapshots__", "snapshots", "golden", "goldens", "goldenfiles", "expected"))
_EXPECTED_FILES = ("*.snap", "*.snapshot", "*.golden", "*.approved.*", "*.ambr", "*.expected")


class ChangedFile(Value):
    """A tracked file that differs from the commit. ``first_change`` describes the first changed line, if there is one.
    ``is_mode_only``: only its permissions differ."""

    name: str
    first_change: str = ""
    is_mode_only: bool = False


class TreeChanges(Value):
    """Differences between a worktree and its snapshot.

    ``head``: the commit at HEAD, if it is another one. ``written``: files that were written with equal content.
    """

    head: str | None = None
    written: tuple[str, ...] = ()
    changed: tuple[ChangedFile, ...] = ()

    def with_inner(self, directory: str, inner: TreeChanges) -> TreeChanges:
        """Return these changes and those of the submodule in ``directory``.

        A commit of the submodule is a change of the file ``directory``, which these changes have already.
        """
        return replace(
            self,
            written=(*self.written, *(f"{directory}/{name}" for name in inner.written)),
            changed=(*self.changed, *(replace(file, name=f"{directory}/{file.name}") for file in inner.changed)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All files that were written, with equal or with other content, sorted."""
        return tuple(sorted({*self.written, *(file.name for file in self.changed)}))


def allowable_names(changes: TreeChanges) -> tuple[str, ...]:
    """Return the written files that a person may allow the tests to change, sorted."""
    changed = {file.name: file for file in changes.changed}
    return tuple(name for name in changes.names if may_be_written(changed.get(name, ChangedFile(name))))


def propose_patterns(names: Sequence[str]) -> tuple[str, ...]:
    """Return patterns for ``config.tests_write``: files, or ``directory/*`` for more than three in one directory."""
    by_directory: dict[str, list[str]] = {}
    for name in names:
        by_directory.setdefault(str(PurePosixPath(name).parent), []).append(name)
    patterns: list[str] = []
    for directory, files in by_directory.items():
        patterns += [f"{directory}/*"] if len(files) > 3 and directory != "." else files
    return tuple(patterns)


def may_be_written(file: ChangedFile) -> bool:
    """Return whether a person may allow tests to change a file: no source, and no file of expected values."""
    path = PurePosixPath(file.name)
    if any(part in _EXPECTED_DIRECTORIES for part in path.parts[:-1]):
        return False
    if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in _EXPECTED_FILES):
        return False
    return file.is_mode_only or breakage.broken_source(file.name, "") is None


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a path matches one of the patterns, in which ``*`` matches any characters."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def judge_changes(changes: TreeChanges, allowed: Sequence[str], baseline: Sequence[str]) -> tuple[GateFinding, ...]:
    """Return what follows from the files that a gate changed.

    ``allowed``: patterns of ``config.tests_write``. ``baseline``: files that the same commands write on the person's
    own commit. Only what the candidate's run alone changes is red.
    """
    findings: list[GateFinding] = []
    if changes.head is not None:
        findings.append(
            GateFinding(GateFindingKind.RED, f"the tests left HEAD at {changes.head[:12]}, not at the candidate")
        )
    for file in changes.changed:
        findings.append(_judge_file(file, allowed, baseline))
    return tuple(findings)


def judge_checkout(
    included: Sequence[str], absent: Sequence[str], changed: Sequence[str], *, is_allowed: bool
) -> tuple[GateFinding, ...]:
    """Return what follows from a sparse checkout of a candidate.

    ``included``: what is checked out. ``absent``: the files that are not. ``changed``: files that the candidate
    changes. ``is_allowed``: a person chose ``config.checkout: sparse``.
    """
    if not absent:
        return ()
    unseen = sorted({*absent} & {*changed})
    if unseen:
        text = f"the sparse checkout leaves out {unseen[0]}, which the candidate changes"
        return (GateFinding(GateFindingKind.UNTESTED, text),)
    if not is_allowed:
        text = f"the checkout leaves out {absent[0]} and {len(absent) - 1} more files"
        return (GateFinding(GateFindingKind.UNTESTED, text, "liza config set checkout full"),)
    return (GateFinding(GateFindingKind.REMARK, f"only {', '.join(included)}"),)


def _judge_file(file: ChangedFile, allowed: Sequence[str], baseline: Sequence[str]) -> GateFinding:
    where = f" ({file.first_change})" if file.first_change else " (its mode)" if file.is_mode_only else ""
    text = f"the tests change {file.name}"
    if may_be_written(file):
        if matches(file.name, allowed):
            return GateFinding(GateFindingKind.REMARK, text)
        if file.name in baseline:
            hint = f"liza config set tests_write {file.name}"
            return GateFinding(GateFindingKind.UNTESTED, f"{text}, on integration too, and nobody has allowed it", hint)
    update = LOCK_COMMANDS.get(PurePosixPath(file.name).name)
    if update is not None:
        return GateFinding(GateFindingKind.RED, f"{text}{where}: commit the result of `{update}`", update)
    return GateFinding(
        GateFindingKind.RED, f"{text}{where}: what was tested is not the candidate; commit the change, or stop it"
    )

"""Files that a command makes: which conflicts a merger resolves with it, and whether the result can be used. Pure."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Mapping, Sequence

from liza.model.value_classes import Value
from liza.project.rules.tree_changes import TreeChanges
from liza.text.undecoded import escape_name, list_names

TRAILER = "Re-made"
"""Key of the line in the message of a merge commit that names a re-made file and its command."""
_MAX_COMMAND = 120  # characters of a command in a text


class GeneratorRun(Value):
    """A command to run in a directory, empty for the top, to make these files again."""

    command: str
    directory: str
    files: tuple[str, ...]

    @property
    def shell_command(self) -> str:
        """The command for a shell that starts at the top of the worktree."""
        return f"cd {shlex.quote(self.directory)} || exit\n{self.command}" if self.directory else self.command

    @property
    def title(self) -> str:
        """The command in one line."""
        line = " ".join(self.command.split())
        return line if len(line) <= _MAX_COMMAND else f"{line[:_MAX_COMMAND]}…"


def find_command(generated: Mapping[str, str], name: str) -> str | None:
    """Return the command that makes a file, by ``config.generated``; None for a file that people write.

    The first matching pattern counts.
    """
    return next((text for pattern, text in generated.items() if text.strip() and _matches(name, pattern)), None)


def _matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a path as a pathspec of git does: ``*`` also matches ``/``."""
    return name == pattern or name.startswith(f"{pattern.rstrip('/')}/") or fnmatch.fnmatchcase(name, pattern)


def plan_runs(generated: Mapping[str, str], files: Sequence[str]) -> tuple[GeneratorRun, ...] | None:
    """Return the commands that resolve a conflict in ``files``, in the order of ``config.generated``; None if one of
    the files is written by people. A command runs once in each directory that has one of its files."""
    wanted: dict[tuple[str, str], list[str]] = {}
    for name in files:
        command = find_command(generated, name)
        if command is None:
            return None
        wanted.setdefault((command, name.rpartition("/")[0]), []).append(name)
    order = list(generated.values())
    keys = sorted(wanted, key=lambda key: (order.index(key[0]), key[1]))
    return tuple(GeneratorRun(command, directory, tuple(wanted[command, directory])) for command, directory in keys)


def find_made(
    generated: Mapping[str, str], runs: Sequence[GeneratorRun], changes: TreeChanges, added: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that the commands changed or added, and those of them that they are not for.

    ``added``: untracked names that were not there before; a directory ends with a slash.
    """
    names = tuple(sorted({*(file.name for file in changes.changed), *added}))
    commands = {run.command for run in runs}
    return names, tuple(name for name in names if find_command(generated, name) not in commands)


def describe_made(runs: Sequence[GeneratorRun]) -> str:
    """Return what was re-made, and by which commands, in one line."""
    return "; ".join(f"re-made: {list_names(run.files)} by {run.title}" for run in runs)


def format_trailers(runs: Sequence[GeneratorRun]) -> tuple[str, ...]:
    """Return one line for each file, for the message of the merge commit."""
    return tuple(f"{TRAILER}: {escape_name(name)} by {run.title}" for run in runs for name in run.files)


def describe_commands(generated: Mapping[str, str], files: Sequence[str]) -> tuple[str, ...]:
    """Return one line for each generated file of a conflict: how who merges the branch by hand resolves it."""
    lines = []
    for name in files:
        command = find_command(generated, name)
        if command is None:
            continue
        (run,) = plan_runs(generated, (name,)) or ()
        step = f"(cd {shlex.quote(run.directory)} && {run.title})" if run.directory else run.title
        take = f"git checkout --theirs -- {shlex.quote(name)}"
        lines.append(f"{escape_name(name)} is generated: do not merge it by hand, but: {take} && {step}")
    return tuple(lines)

"""Hide the brief from git: a clean filter removes the marked block before git compares or stores a file.

The filter is configured in ``.git/config`` and bound to a file name in ``.git/info/attributes``
while a run has a block in that file. All worktrees share both files, so each binding is a section named after its run.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.hiding import _filter, marked_sections
from liza.git.hiding.slot_excludes import info_file
from liza.git.runner import Git
from liza.model.errors import GitFailed, Refused
from liza.text.brief_marks import KEY_ATTRIBUTE, KEY_LENGTH, strip_blocks

FILTER_NAME = "liza-brief"
FILTER_KEY = f"filter.{FILTER_NAME}.clean"
MAX_FILE_SIZE = 1 << 23  # bytes; a larger file is not searched for blocks


def install_filter(git: Git, program: Path | Sequence[str | Path] | None = None) -> None:
    """Write the filter into ``.git/config``. Idempotent. Raises GitFailed."""
    argv: Sequence[str | Path]
    if program is None:
        argv = (sys.executable, "-I", "-S", Path(_filter.__file__).resolve())
    else:
        argv = (program,) if isinstance(program, Path) else program
    command = shlex.join(str(argument) for argument in argv)
    done = git.run("config", "--local", "--get-all", FILTER_KEY, codes=(0, 1)).stdout.decode("utf-8", "replace")
    if done.splitlines() != [command]:
        git.out("config", "--local", "--replace-all", FILTER_KEY, command)


def uninstall_filter(git: Git) -> None:
    """Remove the filter, all bindings and all hidden names from ``.git``. Idempotent. Raises GitFailed."""
    for path in (info_file(git, "attributes"), info_file(git, "exclude")):
        for name in marked_sections.read_sections(path):
            if name.startswith("run="):
                marked_sections.remove_section(path, name)
    git.run("config", "--local", "--remove-section", f"filter.{FILTER_NAME}", codes=(0, 128))


def find_bindable(git: Git, names: Sequence[str]) -> tuple[str, ...]:
    """Return the files of ``names`` without another filter. With ours, git would store those unfiltered.

    Raises GitFailed.
    """
    rows = git.names("check-attr", "-z", "filter", "--", *names) if names else ()
    values = zip(rows[::3], rows[2::3], strict=True)
    return tuple(name for name, value in values if value in ("unspecified", "unset", FILTER_NAME))


def bind_filter(git: Git, names: Sequence[str], run: str, key: str) -> None:
    """Bind the filter to the instructions files ``names`` (relative to the top) for the blocks of ``run``, with
    ``key`` in their marks.

    Raises Refused for a file that has another filter or an unsupported name, GitFailed.
    """
    lines = [f"{_escape_name(name)} filter={FILTER_NAME} {KEY_ATTRIBUTE}={key}" for name in names]
    for name in sorted({*names} - {*find_bindable(git, names)}):
        raise Refused(f"{name} goes through a filter of the project, so no brief can be hidden in it", "liza doctor")
    marked_sections.write_section(info_file(git, "attributes"), f"run={run}", lines)


def unbind_filter(git: Git, run: str) -> None:
    """Remove the bindings of ``run``; those of other runs stay. Idempotent. Raises GitFailed."""
    marked_sections.remove_section(info_file(git, "attributes"), f"run={run}")


def hide_files(git: Git, names: Sequence[str], run: str) -> None:
    """Exclude untracked instructions files that contain only a block from ``git status``.

    Raises GitFailed.
    """
    marked_sections.write_section(info_file(git, "exclude"), f"run={run}", [_escape_name(name) for name in names])


def unhide_files(git: Git, run: str) -> None:
    """Remove the hidden names of ``run``; those of other runs stay. Idempotent. Raises GitFailed."""
    marked_sections.remove_section(info_file(git, "exclude"), f"run={run}")


def list_bound_runs(git: Git) -> tuple[str, ...]:
    """Return the runs with bindings or hidden names. Recovery compares them with the living runs."""
    sections = {
        **marked_sections.read_sections(info_file(git, "attributes")),
        **marked_sections.read_sections(info_file(git, "exclude")),
    }
    return tuple(sorted(name.removeprefix("run=") for name in sections if name.startswith("run=")))


def list_bound_files(git: Git) -> tuple[str, ...]:
    """Return the file names, relative to the top of a worktree, that are bound or hidden for any run."""
    lines = [
        line.partition(f" filter={FILTER_NAME}")[0]
        for path in (info_file(git, "attributes"), info_file(git, "exclude"))
        for name, section in marked_sections.read_sections(path).items()
        if name.startswith("run=")
        for line in section
    ]
    return tuple(sorted({_unescape_name(line) for line in lines}))


def is_tracked(git: Git, name: str) -> bool:
    """Return whether git tracks the file ``name`` in this worktree. Raises GitFailed."""
    return bool(git.names("--literal-pathspecs", "ls-files", "-z", "--", name))


def remove_blocks(git: Git, text: bytes) -> bytes:
    """Return ``text`` without the blocks of bound runs, as the filter does. Raises OSError, GitFailed."""
    return strip_blocks(text, _filter.read_keys(str(git_dirs(git)[0])))


def read_without_blocks(git: Git, name: str) -> bytes:
    """Return a file of the worktree without the blocks of bound runs; empty if there is no file. Raises OSError,
    GitFailed."""
    path = git.directory / name
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            # Any text that is not empty: the caller then keeps the file.
            return b"larger than any brief"
        return remove_blocks(git, path.read_bytes())
    except FileNotFoundError:
        return b""


def find_committed_blocks(git: Git, base: str, head: str) -> tuple[str, ...]:
    """Return the text files in which the commits since ``base`` have a mark of a bound run. Raises OSError, GitFailed.

    The filter sees only the files that are bound, and only complete blocks: not a copy, a renamed file, or a block with
    an edited mark.
    """
    keys = [key for key in _filter.read_keys(str(git_dirs(git)[0])) if len(key) == KEY_LENGTH and key.isalnum()]
    if not keys:
        return ()
    options = ("--name-only", "-z", "--no-renames", "--diff-filter=d", "--no-ext-diff", "--no-textconv")
    names = git.names("diff", *options, f"-G key=({'|'.join(keys)})", base, head, "--")
    # A commit that removes a mark has the key in its difference, too.
    return tuple(name for name in names if any(key.encode() in git.raw("show", f"{head}:{name}") for key in keys))


def refresh_index_entry(git: Git, name: str) -> bool:
    """Refresh the index entry of a file with a block: git takes a file for modified if its size differs from the entry.

    Only done if the index has exactly the file without the block, also during a merge: in any other case ``git add``
    would stage or resolve a person's work. Not done for a file that ``git add -N`` has announced, nor while another git
    command holds the lock of the index. Return whether it was done. Raises GitFailed if the index cannot be read.
    """
    rows = git.names("--literal-pathspecs", "ls-files", "-s", "-z", "--", name)
    if len(rows) != 1:
        return False
    mode, stored, rest = rows[0].split(" ", 2)
    if not mode.startswith("100") or not rest.startswith("0\t") or not (git.directory / name).is_file():
        return False
    if git.out("hash-object", "--", name) != stored:
        return False
    # git diff-files reports an announced file as added: the index has it as empty.
    if not read_without_blocks(git, name) and git.names(
        "--literal-pathspecs", "diff-files", "--diff-filter=A", "--name-only", "-z", "--", name
    ):
        return False
    try:
        git.out("--literal-pathspecs", "add", "--", name)
    except GitFailed:
        return False
    return True


def is_left_out(git: Git, name: str) -> bool:
    """Return whether git tracks ``name`` and a sparse checkout leaves it out of this worktree. Raises GitFailed."""
    rows = git.names("--literal-pathspecs", "ls-files", "-t", "-z", "--", name)
    return any(row.startswith("S ") for row in rows)


def _escape_name(name: str) -> str:
    """Return the gitignore or gitattributes pattern that matches this one file at the top of a worktree."""
    if not name or name.startswith("/") or re.search(r"""[\s"\\]""", name) or ".." in Path(name).parts:
        raise Refused(f"{name!r} cannot be the name of an instructions file", "liza programs show")
    escaped = re.sub(r"([*?\[\]])", r"\\\1", name)
    return f"/{escaped}"


def _unescape_name(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern.removeprefix("/"))

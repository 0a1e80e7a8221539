"""The hunks of a conflict between two commits, as text for the brief of the coder who resolves it."""

from __future__ import annotations

from collections.abc import Sequence

from liza.git.runner import Git
from liza.text.undecoded import escape_name

MAX_LINES, MAX_WIDTH = 60, 200


def read_conflict_hunks(git: Git, base: str, commit: str, files: Sequence[str]) -> str:
    """Return the conflicting parts of ``files`` with git's conflict markers, at most MAX_LINES lines.

    ``base`` is the side above the line of equal signs. Empty if there are none, as for a file that one side deleted.
    Raises GitFailed.
    """
    merging = git.with_environment(GIT_ATTR_SOURCE=base)
    result = merging.run("merge-tree", "--write-tree", "--no-messages", base, commit, codes=(0, 1))
    tree = result.stdout.decode("utf-8", "backslashreplace").split("\n", 1)[0]
    lines: list[str] = []
    for name in files:
        blob = git.run("cat-file", "blob", f"{tree}:{name}", codes=(0, 128))
        if blob.code == 0:
            hunks = _conflict_lines(blob.stdout.decode("utf-8", "backslashreplace"))
            lines += [f"--- {escape_name(name)}", *hunks] if hunks else []
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines: git merge {base[:10]}"]
    return "\n".join(line[:MAX_WIDTH] for line in lines)


def _conflict_lines(text: str) -> list[str]:
    """Return the lines from each ``<<<<<<<`` to its ``>>>>>>>``."""
    lines: list[str] = []
    is_inside = False
    for line in text.splitlines():
        is_inside = is_inside or line.startswith("<<<<<<< ")
        if is_inside:
            lines.append(line)
        is_inside = is_inside and not line.startswith(">>>>>>> ")
    return lines

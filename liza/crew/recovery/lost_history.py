"""Commits of the board's history that no ref names any more, and that git has not removed yet."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.repo.runner import Git
from liza.rules.errors import GitFailed
from liza.rules.paths import HISTORY_REF

_TRAILER = "%(trailers:key=Liza-Revision,valueonly,separator=%x2C)"
_SEARCH_LIMIT = 60.0  # seconds: git fsck reads every object


def find_lost_revision(crew: Crew, newest: int, last: int) -> tuple[int, str] | None:
    """Return the last lost revision above ``newest`` and up to ``last``, and its commit; None if git has none.

    It continues the present history, if there is one. None also if git cannot search in time.
    """
    try:
        output = crew.git.out("fsck", "--no-reflogs", "--connectivity-only", "--no-progress", timeout=_SEARCH_LIMIT)
        dangling = [line.split()[2] for line in output.splitlines() if line.startswith("dangling commit ")]
        revisions = _read_revisions(crew.git, dangling)
    except GitFailed:
        return None
    for revision, commit in sorted(revisions, reverse=True):
        if newest < revision <= last and (
            not newest or crew.git.ok("merge-base", "--is-ancestor", HISTORY_REF, commit)
        ):
            return revision, commit
    return None


def _read_revisions(git: Git, commits: list[str]) -> list[tuple[int, str]]:
    """Return the revision and the name of each commit that is a revision of a board. Raises GitFailed."""
    if not commits:
        return []
    rows = git.out("log", "--no-walk", "--stdin", f"--format=%H {_TRAILER}", stdin="\n".join(commits) + "\n")
    fields = [row.split() for row in rows.splitlines()]
    return [(int(row[1]), row[0]) for row in fields if len(row) == 2 and row[1].isdecimal()]

"""Read what the mergers of a crew on several hosts published, as far as it was fetched: ``refs/liza/merge-term``."""

from __future__ import annotations

from collections.abc import Iterator

from liza.git.rules.publications import TERM_REF, Publication, branch_line, commit_line, parse_publication
from liza.git.runner import Git

_NEWEST = 20
"""Maximum number of commits that are read for the last one of a branch: a line of another branch may contain its."""


def read_last(git: Git) -> tuple[str | None, Publication | None]:
    """Return the newest term commit, and what it says; None without one. Raises GitFailed."""
    commit = git.find_commit(TERM_REF)
    return commit, None if commit is None else parse_publication(git.out("log", "-1", "--format=%B", commit))


def find_published_tip(git: Git, branch: str) -> str | None:
    """Return the commit that was published last to a branch; None without one. Raises GitFailed."""
    publications = (
        each for each in _search(git, branch_line(branch), f"--max-count={_NEWEST}") if each.branch == branch
    )
    return next((each.commit for each in publications), None)


def has_publication(git: Git, branch: str, commit: str) -> bool:
    """Return whether exactly this commit was published to a branch. Raises GitFailed."""
    return any(each.branch == branch for each in _search(git, commit_line(commit)) if each.commit == commit)


def _search(git: Git, line: str, *options: str) -> Iterator[Publication]:
    """Yield the publications whose messages have a line, the newest first."""
    words = ("log", "--first-parent", "--fixed-strings", f"--grep={line}", "--format=%B%x00", *options, TERM_REF)
    result = git.run(*words)
    if result.code != 0:
        if git.find_commit(TERM_REF) is None:
            return
        result = git.run(*words, codes=(0,))
    yield from filter(None, map(parse_publication, result.stdout.decode("utf-8", "surrogateescape").split("\0")))

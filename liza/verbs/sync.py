"""sync: bring a person's branch into integration, as a tested merge."""

from __future__ import annotations

from liza.board.lock import Lock
from liza.repo import merges
from liza.rules.errors import GitFailed, MergeConflict, Refused, UnknownId
from liza.verbs import commands, tampering
from liza.verbs.answer import Answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew
from liza.verbs.merge import SLOT, set_up, settle_dead_merger

_CANDIDATE = "main.sync"
"""No task can have this name: ids have no dots."""


def sync(crew: Crew, branch: str | None = None) -> Answer:
    """Merge ``branch``, by default the one that is checked out, into integration once its tests pass on the merge.

    Raises Refused, UnknownId, MergeConflict, GitFailed; integration is where it was then.
    """
    by = human_or(crew, planner=False)
    into = crew.board.read().config.integration_branch
    source = branch or _checked_out(crew, into)
    commit = merges.tip(crew.git, source)
    if commit is None:
        raise UnknownId(f"there is no branch {source!r}", "git branch")
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("another merge is under way", "liza status")
    try:
        held = crew.holding(lock)
        settle_dead_merger(held, by)
        done = _merged(held, source, commit, into)
    finally:
        lock.release()
    # What was told of integration is accepted now, and `status` need not wait for a supervisor to look again.
    tampering.look(crew, crew.board.read())
    return done


def _checked_out(crew: Crew, into: str) -> str:
    if not crew.git.ok("symbolic-ref", "-q", "HEAD"):
        raise Refused("your checkout is at no branch", "liza sync main")
    found = crew.git.out("symbolic-ref", "--short", "HEAD")
    if found == into:
        raise Refused(f"{into} itself is checked out", "liza sync main")
    return found


def _merged(crew: Crew, source: str, commit: str, into: str) -> Answer:
    while not merges.contains(crew.git, into, commit):
        expected = merges.tip(crew.git, into)
        if expected is None:
            raise GitFailed(f"there is no branch {into}", "liza doctor")
        try:
            made = merges.candidate(crew.git, commit, expected, f"Merge {source} into {into}", _CANDIDATE)
        except MergeConflict as conflict:
            what = f"{source} conflicts with {into} in {', '.join(conflict.files)}"
            raise MergeConflict(what, conflict.files, f"git merge {into}, settle it there, then: liza sync") from None
        try:
            tested = _test(crew, made, into)
            done = merges.advance(crew.git, into, made, expected)
        finally:
            merges.drop_candidate(crew.git, _CANDIDATE)
        if done.outcome == "waiting":
            names = ", ".join(done.files) or "files"
            raise Refused(f"{into} is checked out, and {names} is in the way", "git status")
        if done.outcome == "moved":
            tampering.note_left(crew, made)
            more = {"branch": source, "merge_commit": made, "tested": tested}
            how = "its tests pass" if tested else "untested"
            told = f"{source} is in {into} as {made[:10]}, {how}"
            return Answer("changed", None, None, f"git log --first-parent {into}", more, told)
    tip = merges.tip(crew.git, into)
    if tip is not None:
        # Whoever says this has seen where it stands.
        tampering.note_left(crew, tip)
    more = {"branch": source, "merge_commit": None, "tested": None}
    return Answer("unchanged", None, None, "liza status", more, f"{into} has all of {source} already")


def _test(crew: Crew, candidate: str, into: str) -> bool:
    """Whether there was a test to pass. Raises Refused when the candidate is red."""
    config = crew.board.read().config
    if not config.integration_command:
        return False
    crew.worktrees.detach(SLOT, candidate, "merge-sync")
    red = set_up(crew, SLOT)
    if red:
        raise Refused(red, "liza doctor")
    log = crew.paths.logs / "merge-sync.log"
    done = commands.run(
        config.integration_command, crew.paths.slot(SLOT), log, config.integration_timeout, crew.paths.root
    )
    if not done.green:
        how = "did not end in time" if done.code is None else f"exit {done.code}"
        raise Refused(
            f"the merge with {into} is red: {config.integration_command}: {how}\n{done.tail(12)}", f"less {log}"
        )
    return True

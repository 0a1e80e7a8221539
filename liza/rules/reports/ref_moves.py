"""Changes that sessions made to refs of people, found in git's reflogs. Pure.

A session commits under the person's name followed by its run: ``Alice (coder-1.3)``. git writes that name into the
reflog of every ref that the session moves, so an entry with a run in the reflog of a person's branch is evidence. A
session that removes the name from its environment leaves no evidence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

HEADS_PREFIX, REMOTES_PREFIX, HEAD = "refs/heads/", "refs/remotes/", "HEAD"
_RUN = re.compile(r" \(((?:planner|coder|code-reviewer)-[0-9]{1,9}\.[0-9]{1,9})\)$")
_ENTRY = re.compile(r"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) (.*) <[^>]*> ([0-9]+) [+-][0-9]{4}(?:\t(.*))?")
_SWITCH = re.compile(r"checkout: moving from (\S+) to (\S+)")
_RENAMED = re.compile(r"[Bb]ranch: renamed (refs/heads/\S+) to refs/heads/\S+")
_COPIED = re.compile(r"[Bb]ranch: copied refs/heads/\S+ to refs/heads/\S+")
MOST_BRANCHES = 1000
"""Maximum number of branch tips that are remembered, including those of deleted branches."""
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
PUSH_MESSAGE = "update by push"

Contains = Callable[[str, str], bool]
"""Return whether the first commit has the second one in its history; False if a commit does not exist any more."""


class ReflogEntry(msgspec.Struct, frozen=True):
    """A line of a reflog: commits ``old`` and ``new``, author name, time in seconds since the epoch, git's message."""

    old: str
    new: str
    name: str
    time: int
    message: str

    @property
    def run(self) -> str | None:
        """Run of the session that wrote the entry; None if no session did."""
        match = _RUN.search(self.name)
        return match[1] if match else None

    @property
    def is_first(self) -> bool:
        """Whether this entry created the ref."""
        return not self.old.strip("0")


class SessionRefMove(msgspec.Struct, frozen=True):
    """A ref that a session moved. ``about``: its name for people. ``way``: the command that restores it."""

    ref: str
    about: str
    message: str
    way: str


def session_author(name: str, run: str) -> str:
    """Return the name that a session commits under."""
    return f"{name} ({run})"


def parse_reflog(log: str) -> Iterator[ReflogEntry]:
    """Yield the entries of a reflog, oldest first. Lines that are not entries are skipped."""
    for line in log.split("\n"):
        match = _ENTRY.fullmatch(line)
        if match:
            old, new, name, time, message = match.groups()
            yield ReflogEntry(old, new, name, int(time), message or "")


def find_session_moves(
    logs: Mapping[str, Sequence[ReflogEntry]],
    reviewed: Mapping[str, int],
    tips: Mapping[str, str],
    contains: Contains,
    checkouts: Mapping[str, str],
    remembered_tips: Mapping[str, str] | None = None,
) -> tuple[SessionRefMove, ...]:
    """Return the moves of refs by sessions that are still in effect.

    ``reviewed``: ref → time until which a person has accepted its moves; ``*`` for all refs. ``tips``: ref → commit
    now. ``checkouts``: branch → directory where it is checked out; ``""`` → the person's checkout.
    ``remembered_tips``: earlier tips of people's branches, from ``remembered``.
    """
    moves: list[SessionRefMove] = []
    for ref, log in sorted(logs.items(), reverse=True):
        since = max(reviewed.get("*", 0), reviewed.get(ref, 0))
        session_entries = [entry for entry in log if entry.run and entry.time > since]
        if ref == HEAD:
            moves += _switched(session_entries, tips, checkouts)
        elif session_entries and ref in tips and ref.startswith(REMOTES_PREFIX):
            pushes = [entry for entry in session_entries if entry.message == PUSH_MESSAGE]
            if pushes and _is_in_effect(pushes[0].old, pushes[-1].new, tips[ref], contains):
                moves.append(_pushed(ref, pushes))
        elif session_entries and ref in tips:
            moves += _of_branch(
                ref, log, session_entries, (remembered_tips or {}).get(ref), CurrentRefs(tips, contains, checkouts)
            )
    return tuple(moves)


def remembered(before: Mapping[str, str], logs: Mapping[str, Sequence[ReflogEntry]]) -> dict[str, str]:
    """Return the tips of people's branches, by ref.

    A branch that was deleted, or created again by a session, keeps its earlier tip: git deletes the reflog of a branch
    together with the branch.
    """
    now = {ref: log[-1].new for ref, log in logs.items() if ref.startswith(HEADS_PREFIX) and log and not _is_own(log)}
    gone = {ref: commit for ref, commit in before.items() if ref not in now}
    return dict([*gone.items(), *now.items()][-MOST_BRANCHES:])


class CurrentRefs(msgspec.Struct, frozen=True):
    """Current refs and checkouts: the arguments of ``find_session_moves``."""

    tips: Mapping[str, str]
    contains: Contains
    places: Mapping[str, str]


def _is_own(log: Sequence[ReflogEntry]) -> bool:
    """Return whether a session created the branch."""
    return any(entry.run and (entry.is_first or _COPIED.fullmatch(entry.message)) for entry in log)


def _of_branch(
    ref: str, log: Sequence[ReflogEntry], session_entries: Sequence[ReflogEntry], was: str | None, now: CurrentRefs
) -> Iterator[SessionRefMove]:
    """Yield the move of a branch that sessions renamed, moved, or deleted and created again.

    ``was``: its tip before a session created it again, if it existed before.
    """
    old_ref = next((match[1] for entry in session_entries if (match := _RENAMED.fullmatch(entry.message))), ref)
    if old_ref not in now.tips:
        yield _renamed(ref, old_ref, session_entries)
        return
    created = _is_own(log)
    if created and (was is None or log[0] is not session_entries[0]):
        return
    moves = [entry for entry in session_entries if entry.old != entry.new]
    if created and was is not None:
        moves = [msgspec.structs.replace(entry, old=was) if entry.is_first else entry for entry in moves]
        moves = [entry for entry in moves if entry.old != entry.new]
    if moves and _is_in_effect(moves[0].old, moves[-1].new, now.tips[ref], now.contains):
        yield _moved(ref, moves, log[-1] == session_entries[-1], now.places, created=created)


def _is_in_effect(old: str, new: str, tip: str, contains: Contains) -> bool:
    """Return whether a move from ``old`` to ``new`` is still in effect at the current ``tip``."""
    if not old.strip("0") or contains(new, old):
        return contains(tip, new)
    return not contains(tip, old)


def _renamed(ref: str, old_ref: str, session_entries: Sequence[ReflogEntry]) -> SessionRefMove:
    branch, was = ref.removeprefix(HEADS_PREFIX), old_ref.removeprefix(HEADS_PREFIX)
    renames = [entry for entry in session_entries if _RENAMED.fullmatch(entry.message)]
    message = f"{_runs(renames)} renamed the branch {was}; its name is {branch} now"
    return SessionRefMove(ref, branch, message, shlex.join(["git", "branch", "-m", branch, was]))


def _moved(
    ref: str, moves: Sequence[ReflogEntry], is_last: bool, checkouts: Mapping[str, str], *, created: bool
) -> SessionRefMove:
    """Describe a move.

    ``is_last``: the branch has no later move. ``created``: it was deleted and sessions created it again.
    """
    branch, old, new = ref.removeprefix(HEADS_PREFIX), moves[0].old, moves[-1].new
    if created:
        message = f"the branch {branch} was deleted at {old[:10]}, and {_runs(moves)} created it again at {new[:10]}"
    else:
        message = f"{_runs(moves)} moved the branch {branch} from {old[:10]} to {new[:10]} ({moves[-1].message})"
    checkout = checkouts.get(branch)
    if not is_last:
        message += "; others have moved it since"
        way = ["git", "branch", f"{branch}-before", old[:12]] if created else ["git", "reflog", "show", branch]
    elif checkout is not None:
        way = ["git", "-C", checkout, "reset", "--keep", old[:12]]
    else:
        way = ["git", "branch", "-f", branch, old[:12]]
    return SessionRefMove(ref, branch, message, shlex.join(way))


def _pushed(ref: str, moves: Sequence[ReflogEntry]) -> SessionRefMove:
    name, old, new = ref.removeprefix(REMOTES_PREFIX), moves[0].old, moves[-1].new
    remote, _, branch = name.partition("/")
    if moves[0].is_first:
        message = f"{_runs(moves)} pushed {new[:10]} to {name}, which was not there before"
        way = ["git", "push", f"--force-with-lease={branch}:{new[:12]}", remote, f":{branch}"]
    else:
        message = f"{_runs(moves)} pushed to {name}: from {old[:10]} to {new[:10]}"
        way = ["git", "push", f"--force-with-lease={branch}:{new[:12]}", remote, f"{old[:12]}:refs/heads/{branch}"]
    return SessionRefMove(ref, name, message, shlex.join(way))


def _switched(
    session_entries: Iterable[ReflogEntry], tips: Mapping[str, str], checkouts: Mapping[str, str]
) -> Iterator[SessionRefMove]:
    """Yield the switch of the person's checkout if a session left it on another branch."""
    switches = [(entry, match) for entry in session_entries if (match := _SWITCH.fullmatch(entry.message))]
    if not switches:
        return
    (_, first), (last, second) = switches[0], switches[-1]
    was, now = first[1], second[2]
    checkout = checkouts.get("", ".")
    current = next((branch for branch, path in checkouts.items() if branch and path == checkout), None)
    if was != now and (current == now or (current is None and tips.get(HEAD) == last.new)):
        message = f"{_runs([entry for entry, _ in switches])} switched your checkout from {was} to {now}"
        # The reflog names a commit instead of a branch if HEAD was detached.
        back = ["--detach", was] if _COMMIT.fullmatch(was) else [was]
        yield SessionRefMove(HEAD, HEAD, message, shlex.join(["git", "-C", checkout, "switch", *back]))


def _runs(moves: Iterable[ReflogEntry]) -> str:
    names = list(dict.fromkeys(entry.run or "" for entry in moves))
    return f"the session {names[0]}" if len(names) == 1 else f"the sessions {', '.join(names)}"

"""What sessions did to refs that are not theirs, by git's own logs of them. Pure.

A session commits under the person's name with its run behind it: ``Alice (coder-1.3)``. git writes that name into the
log of every ref that the session moves, so an entry with a run in the log of a person's branch is evidence. A session
that takes the name out of its environment leaves none.
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
"""How many branches are remembered that may be gone."""
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
PUSH_MESSAGE = "update by push"

Contains = Callable[[str, str], bool]
"""Whether the first commit has the second one in its history; False for one that is not there any more."""


class ReflogEntry(msgspec.Struct, frozen=True):
    """A line of the log of a ref: from ``old`` to ``new``, by whom, when (seconds since the epoch), and git's word."""

    old: str
    new: str
    name: str
    time: int
    message: str

    @property
    def run(self) -> str | None:
        """The session that made it; None for anybody else."""
        found = _RUN.search(self.name)
        return found[1] if found else None

    @property
    def is_first(self) -> bool:
        """Whether the ref came into being with it."""
        return not self.old.strip("0")


class SessionRefMove(msgspec.Struct, frozen=True):
    """A ref that a session moved. ``about`` is its name for people, ``way`` the command that puts it back."""

    ref: str
    about: str
    message: str
    way: str


def session_author(name: str, run: str) -> str:
    """The name that a session commits under."""
    return f"{name} ({run})"


def parse_reflog(log: str) -> Iterator[ReflogEntry]:
    """The entries of the log of a ref, oldest first; what is no entry is passed over."""
    for line in log.split("\n"):
        found = _ENTRY.fullmatch(line)
        if found:
            old, new, name, time, message = found.groups()
            yield ReflogEntry(old, new, name, int(time), message or "")


def find_session_moves(
    logs: Mapping[str, Sequence[ReflogEntry]],
    reviewed: Mapping[str, int],
    tips: Mapping[str, str],
    contains: Contains,
    places: Mapping[str, str],
    known: Mapping[str, str] | None = None,
) -> tuple[SessionRefMove, ...]:
    """The refs that sessions moved and that still stand there.

    ``reviewed``: until when a person has accepted what was done to a ref, ``*`` for every one. ``tips``: where refs
    stand. ``places``: where branches are checked out; HEAD is that of the person's checkout. ``known``: where the
    branches of people were, from ``remembered``.
    """
    found: list[SessionRefMove] = []
    for ref, log in sorted(logs.items(), reverse=True):
        since = max(reviewed.get("*", 0), reviewed.get(ref, 0))
        theirs = [one for one in log if one.run and one.time > since]
        if ref == HEAD:
            found += _switched(theirs, tips, places)
        elif theirs and ref in tips and ref.startswith(REMOTES_PREFIX):
            moves = [one for one in theirs if one.message == PUSH_MESSAGE]
            if moves and _is_in_effect(moves[0].old, moves[-1].new, tips[ref], contains):
                found.append(_pushed(ref, moves))
        elif theirs and ref in tips:
            found += _of_branch(ref, log, theirs, (known or {}).get(ref), RefTips(tips, contains, places))
    return tuple(found)


def remembered(before: Mapping[str, str], logs: Mapping[str, Sequence[ReflogEntry]]) -> dict[str, str]:
    """Where the branches of people are, by ref. A branch that is gone, or that a session made anew under the same name,
    is remembered as it was: git deletes the log of a branch with the branch.
    """
    now = {ref: log[-1].new for ref, log in logs.items() if ref.startswith(HEADS_PREFIX) and log and not _is_own(log)}
    gone = {ref: commit for ref, commit in before.items() if ref not in now}
    return dict([*gone.items(), *now.items()][-MOST_BRANCHES:])


class RefTips(msgspec.Struct, frozen=True):
    """Where refs and checkouts are now. ``tips``, ``contains`` and ``places`` are those of ``judge``."""

    tips: Mapping[str, str]
    contains: Contains
    places: Mapping[str, str]


def _is_own(log: Sequence[ReflogEntry]) -> bool:
    """Whether a session created the branch."""
    return any(one.run and (one.is_first or _COPIED.fullmatch(one.message)) for one in log)


def _of_branch(
    ref: str, log: Sequence[ReflogEntry], theirs: Sequence[ReflogEntry], was: str | None, now: RefTips
) -> Iterator[SessionRefMove]:
    """A branch that sessions renamed, moved, or deleted and created again. ``was``: the commit before a session created
    it, if it existed before."""
    first = next((found[1] for one in theirs if (found := _RENAMED.fullmatch(one.message))), ref)
    if first not in now.tips:
        yield _renamed(ref, first, theirs)
        return
    created = _is_own(log)
    if created and (was is None or log[0] is not theirs[0]):
        return
    moves = [one for one in theirs if one.old != one.new]
    if created and was is not None:
        moves = [msgspec.structs.replace(one, old=was) if one.is_first else one for one in moves]
        moves = [one for one in moves if one.old != one.new]
    if moves and _is_in_effect(moves[0].old, moves[-1].new, now.tips[ref], now.contains):
        yield _moved(ref, moves, log[-1] == theirs[-1], now.places, created=created)


def _is_in_effect(old: str, new: str, tip: str, contains: Contains) -> bool:
    """Whether what moved a ref from ``old`` to ``new`` is not undone by where it stands now."""
    if not old.strip("0") or contains(new, old):
        return contains(tip, new)
    return not contains(tip, old)


def _renamed(ref: str, first: str, theirs: Sequence[ReflogEntry]) -> SessionRefMove:
    branch, was = ref.removeprefix(HEADS_PREFIX), first.removeprefix(HEADS_PREFIX)
    renames = [one for one in theirs if _RENAMED.fullmatch(one.message)]
    message = f"{_runs(renames)} renamed the branch {was}; its name is {branch} now"
    return SessionRefMove(ref, branch, message, shlex.join(["git", "branch", "-m", branch, was]))


def _moved(
    ref: str, moves: Sequence[ReflogEntry], is_last: bool, places: Mapping[str, str], *, created: bool
) -> SessionRefMove:
    """``is_last``: nobody has moved the branch since; ``created``: it was deleted, and sessions created it again."""
    branch, old, new = ref.removeprefix(HEADS_PREFIX), moves[0].old, moves[-1].new
    if created:
        message = f"the branch {branch} was deleted at {old[:10]}, and {_runs(moves)} created it again at {new[:10]}"
    else:
        message = f"{_runs(moves)} moved the branch {branch} from {old[:10]} to {new[:10]} ({moves[-1].message})"
    place = places.get(branch)
    if not is_last:
        message += "; others have moved it since"
        way = ["git", "branch", f"{branch}-before", old[:12]] if created else ["git", "reflog", "show", branch]
    elif place is not None:
        way = ["git", "-C", place, "reset", "--keep", old[:12]]
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
    theirs: Iterable[ReflogEntry], tips: Mapping[str, str], places: Mapping[str, str]
) -> Iterator[SessionRefMove]:
    """The person's checkout, where a session left it on another branch."""
    switches = [(one, found) for one in theirs if (found := _SWITCH.fullmatch(one.message))]
    if not switches:
        return
    (_, first), (last, second) = switches[0], switches[-1]
    was, now = first[1], second[2]
    checkout = places.get("", ".")
    standing = next((branch for branch, place in places.items() if branch and place == checkout), None)
    if was != now and (standing == now or (standing is None and tips.get(HEAD) == last.new)):
        message = f"{_runs([one for one, _ in switches])} switched your checkout from {was} to {now}"
        # It was on no branch where git has noted a commit.
        back = ["--detach", was] if _COMMIT.fullmatch(was) else [was]
        yield SessionRefMove(HEAD, HEAD, message, shlex.join(["git", "-C", checkout, "switch", *back]))


def _runs(moves: Iterable[ReflogEntry]) -> str:
    names = list(dict.fromkeys(one.run or "" for one in moves))
    return f"the session {names[0]}" if len(names) == 1 else f"the sessions {', '.join(names)}"

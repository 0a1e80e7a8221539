"""Refs of a person's that sessions moved, and what a person has accepted of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from liza.crew.crew import Crew
from liza.repo import reflogs
from liza.repo.config_pins import Pins, git_dirs
from liza.repo.merge import merges
from liza.rules.model import State
from liza.rules.reports import ref_moves
from liza.rules.reports.ref_moves import HEAD, HEADS_PREFIX, REMOTES_PREFIX, ReflogEntry, SessionRefMove


def detect_session_moves(
    crew: Crew, state: State, before: Mapping[str, str]
) -> tuple[tuple[SessionRefMove, ...], dict[str, str]]:
    """What stands, and where the branches of people are, which was ``before`` at the last look.

    Asks git nothing where no log of a ref names a session. Raises LizaError, OSError.
    """
    every = _session_logs(crew, state)
    known, logs = ref_moves.remembered(before, every), _of_sessions(every)
    return (_judged(crew, logs, known) if logs else ()), known


def _judged(
    crew: Crew, logs: Mapping[str, Sequence[ReflogEntry]], branches: Mapping[str, str]
) -> tuple[SessionRefMove, ...]:
    rows = crew.git.lines("for-each-ref", "--format=%(refname) %(objectname)", HEADS_PREFIX, REMOTES_PREFIX)
    tips = dict(row.split(" ", 1) for row in rows)
    head = crew.git.run("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1, 128)).stdout.decode().strip()
    places = {branch: str(place) for place, branch in merges.list_checkouts(crew.git).items() if branch}

    def contains(commit: str, other: str) -> bool:
        return crew.git.run("merge-base", "--is-ancestor", other, commit, codes=(0, 1, 128)).code == 0

    known = Pins.load(crew.paths.pins).reviewed
    here = {**places, "": str(crew.paths.root)}
    return ref_moves.find_session_moves(logs, known, {**tips, HEAD: head}, contains, here, branches)


def find_moved_ref(crew: Crew, state: State, name: str) -> str | None:
    """The ref that an alarm calls ``name``, where a session moved it; None for anything else."""
    refs = {
        ref.removeprefix(HEADS_PREFIX).removeprefix(REMOTES_PREFIX): ref
        for ref in _of_sessions(_session_logs(crew, state))
    }
    return refs.get(name)


def _session_logs(crew: Crew, state: State) -> dict[str, Sequence[ReflogEntry]]:
    """The logs of refs, but for that of integration, whose every move is told anyway."""
    logs = reflogs.read_logs(git_dirs(crew.git)[1])
    logs.pop(f"{HEADS_PREFIX}{state.config.integration_branch}", None)
    return dict(logs)


def _of_sessions(logs: Mapping[str, Sequence[ReflogEntry]]) -> dict[str, Sequence[ReflogEntry]]:
    """The logs that name a session."""
    return {ref: log for ref, log in logs.items() if any(one.run for one in log)}

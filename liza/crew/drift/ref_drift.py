"""A person's refs that sessions moved, except moves that a person has accepted."""

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
    """Return the moves that are in effect, and the current tips of people's branches.

    ``before`` are the tips at the last detection. Runs no git if no reflog names a session. Raises LizaError, OSError.
    """
    all_logs = _read_logs(crew, state)
    branches, logs = ref_moves.remembered(before, all_logs), _with_sessions(all_logs)
    return (_find_moves(crew, logs, branches) if logs else ()), branches


def _find_moves(
    crew: Crew, logs: Mapping[str, Sequence[ReflogEntry]], branches: Mapping[str, str]
) -> tuple[SessionRefMove, ...]:
    rows = crew.git.lines("for-each-ref", "--format=%(refname) %(objectname)", HEADS_PREFIX, REMOTES_PREFIX)
    tips = dict(row.split(" ", 1) for row in rows)
    head = crew.git.run("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1, 128)).stdout.decode().strip()
    checkouts = {branch: str(path) for path, branch in merges.list_checkouts(crew.git).items() if branch}

    def contains(commit: str, other: str) -> bool:
        return crew.git.run("merge-base", "--is-ancestor", other, commit, codes=(0, 1, 128)).code == 0

    reviewed = Pins.load(crew.paths.pins).reviewed
    directories = {**checkouts, "": str(crew.paths.root)}
    return ref_moves.find_session_moves(logs, reviewed, {**tips, HEAD: head}, contains, directories, branches)


def find_moved_ref(crew: Crew, state: State, name: str) -> str | None:
    """Return the ref that an alarm calls ``name`` if a session moved it, else None."""
    refs = {
        ref.removeprefix(HEADS_PREFIX).removeprefix(REMOTES_PREFIX): ref
        for ref in _with_sessions(_read_logs(crew, state))
    }
    return refs.get(name)


def _read_logs(crew: Crew, state: State) -> dict[str, Sequence[ReflogEntry]]:
    """Return the reflogs of people's refs, without integration: each of its moves is reported anyway."""
    logs = reflogs.read_logs(git_dirs(crew.git)[1])
    logs.pop(f"{HEADS_PREFIX}{state.config.integration_branch}", None)
    return dict(logs)


def _with_sessions(logs: Mapping[str, Sequence[ReflogEntry]]) -> dict[str, Sequence[ReflogEntry]]:
    """Return the reflogs that name a session."""
    return {ref: log for ref, log in logs.items() if any(entry.run for entry in log)}

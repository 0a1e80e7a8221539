"""Facts for the rules of claiming that are not on the board: offline agents, ended sessions, work records."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import cache

from liza.crew import run_state
from liza.crew.archive.routing_records import LazyRecords
from liza.crew.crew import Crew
from liza.rules.errors import LizaError
from liza.rules.model import State, Status
from liza.rules.paths import agent_of
from liza.rules.tasks.picking import Evidence
from liza.rules.tasks.task_groups import held_tasks, tasks_with

_OWNED_STATUSES = frozenset({Status.CLAIMED, Status.READY_FOR_REVIEW, Status.REJECTED, Status.INTEGRATION_FAILED})


class LazySet(Container[str]):
    """The ``candidates`` for which ``is_member`` is true. It is called once for each, when membership is tested."""

    def __init__(self, candidates: Iterable[str | None], is_member: Callable[[str], bool]) -> None:
        self._candidates = frozenset(candidates)
        self._is_member = cache(is_member)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._candidates and self._is_member(name)


def gather_evidence(crew: Crew, state: State) -> Evidence:
    """Return the facts for `pick_task` that are not on the board: offline agents and ended sessions.

    A lock or a file is read when a rule asks for it, once for each agent and run. Most decisions need none, and to
    read all of them for each supervisor would grow with the square of the number of agents.
    """
    tasks = [task for status in _OWNED_STATUSES for task in tasks_with(state, status) if task.run]
    reviews = [(task.review_run, task.review_lease_expires) for task in held_tasks(state)]
    now, leases = crew.clock.now(), dict([*reviews, (state.planning.run, state.planning.lease_expires)])
    lapsed = {run for run, expires in leases.items() if run is not None and expires is not None and expires <= now}
    return Evidence(
        offline=LazySet({task.assigned_to for task in tasks}, lambda agent: not crew.is_supervised(agent)),
        dead=LazySet({task.run for task in tasks}, lambda run: _is_over(crew, run)),
        abandoned=LazySet(lapsed, lambda run: not crew.is_supervised(agent_of(run)) and _is_over(crew, run)),
        online=LazySet(state.agents, crew.is_supervised),
        records=LazyRecords(crew, state) if state.config.routing == "record" else {},
    )


def _is_over(crew: Crew, run: str) -> bool:
    """Whether a session is proved over. An unreadable file proves nothing; it must not stop other agents."""
    try:
        return run_state.is_session_over(crew.run_dir(run))
    except LizaError:
        return False

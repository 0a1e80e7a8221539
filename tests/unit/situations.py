"""Situations and sessions for `decide`, from facts that are named alone: a table of cases stays a table."""

from __future__ import annotations

from typing import Any

from liza.model.model import State
from liza.model.value_classes import replace
from liza.supervisor.rules.session_facts import SessionFacts, SessionState, Situation
from tests.unit.boards import NOW

OF_SESSION = {
    "ready": ("start", "is_ready"),
    "ready_timeout": ("start", "timeout"),
    "never_ready": ("start", "never_ready"),
    "needs_person": ("start", "needs_person"),
    "silence": ("model", "silence"),
    "reported_silence": ("model", "reported"),
    "idle": ("idle", "seconds"),
    "reminders": ("idle", "reminders"),
    "is_waiting": ("idle", "is_waiting"),
    "context_usage": ("context", "usage"),
    "context_asked": ("context", "asked"),
    "question": ("question", "shown"),
    "reported_question": ("question", "reported"),
    "stuck": ("loop", "stuck"),
    "warned": ("loop", "warned"),
    "since_start": ("ages", "start"),
    "since_activity": ("ages", "activity"),
    "since_heartbeat": ("ages", "heartbeat"),
    "since_closing_command": ("ages", "closing_command"),
}
OF_SITUATION = {
    **{
        name: ("supervisor", name)
        for name in (
            "leaving",
            "retiring",
            "crash_loop",
            "rest_seconds",
            "unusable_reason",
            "since_clock_gap",
        )
    },
    "over_budget": ("budget", "over_budget"),
    "seconds_left": ("budget", "seconds_left"),
    "merge_lock_free": ("merging", "may_start"),
    "resumable_merge": ("merging", "resumable"),
}


def with_facts(whole: Any, places: dict[str, tuple[str, str]], facts: dict[str, Any]) -> Any:
    """``whole`` with these facts, each in its part."""
    for name, value in facts.items():
        part, field = places.get(name, (None, name))
        value = value if part is None else replace(getattr(whole, part), **{field: value})
        whole = replace(whole, **{part or field: value})
    return whole


def changed(session: SessionFacts, **facts: Any) -> SessionFacts:
    return with_facts(session, OF_SESSION, facts)


def living(run: str, **facts: Any) -> SessionFacts:
    """A session that lives and is ready, with these facts."""
    return changed(SessionFacts(run, SessionState.LIVING), **{"ready": True, **facts})


def situation(state: State, agent: str = "coder-1", **facts: Any) -> Situation:
    return with_facts(Situation(agent, state, NOW), OF_SITUATION, facts)

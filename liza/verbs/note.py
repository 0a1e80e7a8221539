"""note: something that a person wants known; it stands in the briefs of whom it is for."""

from __future__ import annotations

from msgspec.structs import replace

from liza.rules.errors import UnknownId, Usage
from liza.rules.model import HumanNote, State
from liza.rules.paths import agent_id
from liza.verbs.answer import Answer, answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew


def note(crew: Crew, text: str, to: str | None = None) -> Answer:
    """Write a note onto the board, for an agent, a task, or everyone. Raises UnknownId, Usage, Refused."""
    by = human_or(crew, planner=False)
    if not text.strip():
        raise Usage("a note needs words", 'liza note --to coder-1 "…"')
    with crew.change(by, "note") as tx:
        whom = _recipient(tx.state, to)
        entry = HumanNote(timestamp=crew.clock.now(), message=text, recipient=whom)
        tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, entry))
    task = whom if whom is not None and tx.state.task(whom) else None
    return answer(tx.before, tx.state, task, "it stands in the next brief", to=whom)


def _recipient(state: State, to: str | None) -> str | None:
    if to is None or state.task(to) is not None:
        return to
    try:
        name = agent_id(to)
    except Usage:
        name = to
    if name not in state.agents:
        known = ", ".join([*state.agents, *(task.id for task in state.tasks)][:8]) or "nobody yet"
        raise UnknownId(f"{to!r} is neither an agent nor a task on the board (there are: {known})", "liza status")
    return name

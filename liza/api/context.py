"""Context: the sections of a run's brief, for a runtime that gives them to its model itself."""

from __future__ import annotations

from liza.api.api_answers import ContextAnswer, ContextSection
from liza.api.api_requests import ContextRequest
from liza.api.current_run import require_current_run
from liza.briefs.brief_facts import gather_brief_facts
from liza.briefs.brief_writer import compose_sections
from liza.briefs.rules.context_rules import select_sections
from liza.crew.crew import Crew
from liza.model.errors import NotOwner
from liza.model.owned_work import find_current_work
from liza.text.quoting import sanitize


def compose_context(crew: Crew, request: ContextRequest) -> ContextAnswer:
    """Return the sections for the run's present work.

    A run whose runtime reports gets its messages as prompts, so the section ``mail`` has only the notes on the board.
    Raises UnknownId, RunIsOver, NotOwner if the run has no claim any more, LizaError, OSError.
    """
    run_dir = crew.run_dir(request.run_id)
    require_current_run(run_dir)
    state = crew.board.read()
    work = find_current_work(state, run_dir.agent)
    if work is None or work.run != run_dir.run:
        raise NotOwner(f"{run_dir.run} has no claim any more", f"liza agents {run_dir.agent}")
    turn = run_dir.read_turn()
    messages = () if turn is not None and turn.is_reported else None
    facts = gather_brief_facts(crew, state, work, run_dir, messages)
    sections = select_sections(compose_sections(facts), request.mode)
    return ContextAnswer(
        run_id=run_dir.run,
        mode=request.mode,
        sections=tuple(ContextSection(type=section.type, content=sanitize(section.text)) for section in sections),
    )

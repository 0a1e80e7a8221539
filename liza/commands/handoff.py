"""``liza handoff``: hand the work over to a new session, and write what it must know."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.handoff import HandoffRequest
from liza.tasks.handoff import handoff as hand_off

app = create_app()


@declare_command(
    app,
    "handoff",
    'liza handoff "the model is done, its tests pass" --next "write the PDF test"',
    in_sessions=True,
    position=Position(Heading.AGENTS, 5),
)
def handoff(
    done: Annotated[str, typer.Argument(metavar="DONE", help="What is done; for a planner, what was decided.")],
    next_step: Annotated[str, typer.Option("--next", help="The first thing that the next session should do.")] = "",
    approach: Annotated[str | None, typer.Option("--approach", help="The approach you chose, and why.")] = None,
    blockers: Annotated[str | None, typer.Option("--blockers", help="What prevents progress.")] = None,
    file: Annotated[list[str] | None, typer.Option("--file", help="A changed file; repeatable.")] = None,
    step: Annotated[list[str] | None, typer.Option("--step", help="A further step; repeatable.")] = None,
    planned: Annotated[bool, typer.Option("--done", help="For a planner: planning is finished.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hand the work over to a new session, and write what it must know. With --done, a planner ends its planning."""
    request = HandoffRequest(
        summary=done,
        next_action=next_step,
        approach=approach,
        blockers=blockers,
        files=tuple(file or ()),
        steps=tuple(step or ()),
        done=planned,
    )
    printing.print_result(hand_off(find_crew(), request), as_json)

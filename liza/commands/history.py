"""``liza history``: show what happened, newest first, one line per event."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.commands._last_copy import show_last_copy
from liza.commands.logs import FollowOption
from liza.crew.caller import current_person
from liza.crew.crew import Crew, find_crew
from liza.printing import printing, render_patch
from liza.printing.pager import exit_with_reader, page_text
from liza.text.formats import count_noun
from liza.view import history as verbs

app = create_app()
OptionalTaskId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this task.")]
EVENTS, REVISIONS = 20, 50
"""Default limits. The events fit on a screen."""


@declare_command(
    app,
    "history",
    "liza history invoice-model\nliza history invoice-model -p",
    process=Process.DIRECT_AT_TERMINAL,
    in_sessions=True,
    position=Position(Heading.LOOK, 6),
)
@show_last_copy
def history(
    task_id: OptionalTaskId = None,
    follow: FollowOption = False,
    all_: Annotated[bool, typer.Option("--all", help="Every revision of the board.")] = False,
    patch: Annotated[bool, typer.Option("-p", "--patch", help="Every revision, with its changes.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("-n", "--limit", min=1, help=f"Maximum number; default: {EVENTS} events, {REVISIONS} revisions."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened, newest first, one line per event. At a terminal, long lines are cut.

    --all, -p and --json show the revisions of the board. The same in git: git log -p refs/liza/blackboard.
    """
    crew = find_crew()
    if not (all_ or patch or as_json):
        _print_events(crew, task_id, limit or EVENTS, follow=follow)
        return
    revisions = verbs.history(crew, task_id, limit or REVISIONS, patch)
    if as_json and not follow:
        printing.print_json({"revisions": revisions})
    elif not follow:
        page_text(render_patch.format_history(revisions, printing.wants_colours()), crew.git)
    else:
        exit_with_reader()
        for entry in verbs.follow_history(crew, task_id, revisions, patch):
            if as_json:
                printing.print_json_line(entry)
            else:
                printing.print_now(render_patch.format_history([entry], printing.wants_colours()))


def _print_events(crew: Crew, task_id: str | None, limit: int, *, follow: bool) -> None:
    past = verbs.recall_events(crew, task_id, limit)
    events = render_patch.EventList(crew.clock.now(), printing.text_width(), printing.wants_colours(), current_person())
    if not follow:
        text = events.format(reversed(past.items)) or "nothing has happened yet"
        if past.archived:
            text += f"\nwithout {count_noun(past.archived, 'archived task')}: liza history --all"
        page_text(text, crew.git)
        return
    exit_with_reader()
    printing.print_now(events.format(past.items))
    for item in verbs.follow_events(crew, task_id):
        printing.print_now(events.format([item]))

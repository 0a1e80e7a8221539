"""``liza verdict``: approve or reject the commit under review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.caller import enclosing_run
from liza.crew.crew import Crew, find_crew
from liza.model.errors import UsageError
from liza.model.value_classes import replace
from liza.printing import printing
from liza.tasks.verdict import verdict as give_verdict

app = create_app()
_COMMENT = "--comment"


class PairedCommentsCommand(TyperCommand):
    """A command whose option ``--comment`` has two values, and can be repeated: typer has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined, rest = [], iter(args)
        for word in rest:
            joined.append(word)
            if word == "--":
                return super().parse_args(ctx, [*joined, *rest])
            if word == _COMMENT:
                location, text = next(rest, None), next(rest, None)
                if location is None or text is None:
                    raise _comment_error()
                joined.append(f"{location}\n{text}")
        return super().parse_args(ctx, joined)


@declare_command(
    app,
    "verdict",
    'liza verdict approve "ran npm test: 214 pass; the three clauses of DONE WHEN hold"\n'
    'liza verdict reject "src/tax.py:12 rounds down; 0.125 must give 0.13" --task invoice-model\n'
    'liza verdict reject "rounding" --task invoice-model --comment src/tax.py:12 "rounds down"',
    cls=PairedCommentsCommand,
    in_sessions=True,
    position=Position(Heading.AGENTS, 3),
)
def verdict(
    word: Annotated[str, typer.Argument(metavar="approve|reject", help="Your verdict.")],
    text: Annotated[str, typer.Argument(help="What you ran and saw, or what is wrong and how you saw it.")],
    task: Annotated[
        str | None, typer.Option("--task", help="The task, if a person gives the verdict. An agent's run has a task.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option("--commit", help="The commit that you judge; default: the one under review.")
    ] = None,
    comment: Annotated[
        list[str] | None,
        typer.Option(
            "--comment",
            metavar="FILE:LINE TEXT",
            help="A comment on a line of the rejected commit, for the coder's next brief; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Approve or reject the commit under review. The verdict is binding."""
    comments = split_pairs(comment or ())
    crew = find_crew()
    result = give_verdict(crew, word, text, task_id=task, commit=commit, comments=comments)
    # What an agent rejects, its supervisor tells: the agent chose the environment of this process.
    remarks = _tell_authors(crew, task) if task is not None and enclosing_run(crew) is None else ()
    printing.print_result(replace(result, remarks=(*result.remarks, *remarks)), as_json)


def _tell_authors(crew: Crew, task: str) -> tuple[str, ...]:
    """Comment on the pull request of work that was rejected. Return a sentence about it."""
    # Loaded now: agents give most verdicts.
    from liza.landing.submitted_requests import comment_returns

    return comment_returns(crew, [task])


def split_pairs(joined: Sequence[str]) -> list[tuple[str, str]]:
    """Return the two values of each ``--comment``. Raises UsageError if only one was given."""
    pairs = [comment.partition("\n") for comment in joined]
    if not all(separator for _, separator, _ in pairs):
        raise _comment_error()
    return [(location, text) for location, _, text in pairs]


def _comment_error() -> UsageError:
    return UsageError("--comment needs FILE:LINE and a text", 'liza verdict reject "…" --comment src/tax.py:12 "…"')

"""``liza down``: stop the crew."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from liza.cli.declare import Heading, JsonOption, Position, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.paths import HISTORY_REF
from liza.verbs import down as verbs

app = create_app()


@declare_command(app, "down", "liza down", position=Position(Heading.START, 6))
def down(
    now: Annotated[bool, typer.Option("--now", help="End the sessions at once, without time to finish.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Then remove everything of Liza from the repository.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the crew. With --purge, then remove Liza from the repository.

    --purge keeps commits that exist nowhere else. If there are any, it also keeps the history of the board
    (refs/liza/blackboard).
    """
    crew = find_crew()
    if not purge:
        printing.print_result(verbs.down(crew, now=now), as_json)
        return
    result = verbs.purge(crew)
    if as_json:
        printing.print_json(
            {
                "gone": result.deleted_refs,
                "kept": result.kept_refs,
                "unread": result.unread_files,
                "ended": result.ended,
                "left": result.left,
                "branch": result.branch,
            }
        )
        return
    if result.ended:
        printing.print_text(f"ended first: {', '.join(result.ended)}")
    printing.print_text(f"Liza was removed from this repository, with {', '.join(result.deleted_refs) or 'no branch'}.")
    for ref in result.kept_refs:
        reason = "the history of the board, kept with the refs above" if ref == HISTORY_REF else "no other ref has it"
        printing.print_text(f"  kept {ref}: {reason}")
    if result.branch is not None:
        step = shlex.join(["git", "branch", "-D", result.branch])
        printing.print_text(f"  kept refs/heads/{result.branch}: no record says that this crew created it: {step}")
    for name in result.unread_files:
        printing.print_text(f"  not read: {name}, neither a regular file nor a symlink")
    for path in result.left:
        printing.print_text(f"  not deleted: {path}")

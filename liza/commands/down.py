"""``liza down``: stop the crew."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.model.paths import HISTORY_REF
from liza.printing import printing
from liza.supervisor import down as verbs
from liza.text.formats import count_noun

app = create_app()


@declare_command(app, "down", "liza down\nliza down coder-2", position=Position(Heading.START, 6))
def down(
    agents: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AGENT]...", help="Only these agents, such as coder-1; default: the whole crew."),
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="End the sessions at once, without time to finish.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Then remove everything of Liza from the repository.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List each ref that --purge removes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the crew, or single agents. With --purge, then remove Liza from the repository.

    With AGENT, the other agents go on, and nothing starts the agent again but `liza up`. Its session ends with some
    seconds to finish, and its work is kept: another agent takes the task, or the agent itself when it is back.

    --purge keeps commits that exist nowhere else. If there are any, it also keeps the history of the board
    (refs/liza/blackboard).
    """
    if agents and purge:
        raise UsageError("--purge removes the whole crew, and takes no AGENT", f"liza down {' '.join(agents)}")
    crew = find_crew()
    if agents:
        printing.print_result(verbs.stop_agents(crew, agents, now=now), as_json)
        return
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
    printing.print_wrapped(format_purge(result, verbose=verbose))


def format_purge(result: verbs.PurgeResult, *, verbose: bool) -> str:
    """Return what a purge removed, and each thing that it kept with the reason. ``verbose``: name each removed ref."""
    lines = [f"ended first: {', '.join(result.ended)}"] if result.ended else []
    hint = " (-v lists them)" if result.deleted_refs and not verbose else ""
    lines.append(f"removed Liza from this repository, with {count_noun(len(result.deleted_refs), 'ref')}{hint}")
    lines += [f"  {ref}" for ref in result.deleted_refs] if verbose else []
    kept = [ref.removeprefix("refs/heads/") for ref in result.kept_refs if ref != HISTORY_REF]
    if kept:
        lines.append(f"kept {', '.join(kept)}: no other ref has {'its' if len(kept) == 1 else 'their'} commits")
    if HISTORY_REF in result.kept_refs:
        lines.append(f"kept {HISTORY_REF}: the history of the board, with what was kept")
    if result.branch is not None:
        step = shlex.join(["git", "branch", "-D", result.branch])
        lines.append(f"kept {result.branch}: no record says that this crew created it: {step}")
    lines += [f"not read: {name}, neither a regular file nor a symlink" for name in result.unread_files]
    lines += [f"not deleted: {path}" for path in result.left]
    return "\n".join(lines)

"""``liza programs``: which agent programs there are."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing, render_crew

app = create_app("Agent programs: which are known, which are here.")


@declare_command(app, "list", "liza programs list")
def list_(as_json: JsonOption = False) -> None:
    """List the programs that Liza knows how to drive, with the versions of those that are installed."""
    from liza.verbs.programs import list_programs

    found = list_programs()
    printing.print_json(found) if as_json else printing.print_text(render_crew.format_programs(found))


@declare_command(app, "check", "liza programs check script:./agent.sh")
def check(
    name: Annotated[str | None, typer.Argument(help="Only this one, and try it; default: all that are here.")] = None,
    run: Annotated[
        bool | None, typer.Option("--run/--no-run", help="Have it do a small task, which asks its model.")
    ] = None,
    limit: Annotated[float, typer.Option("--limit", min=1, help="Seconds that a program has for its task.")] = 300,
    as_json: JsonOption = False,
) -> int:
    """Check that programs are installed and work; exit 1 when one does not.

    A program that is tried takes a small task from its brief to its submission, in a project that is thrown away, with
    this crew's permissions: so its login, its permissions and its words for Liza are shown. It asks its model a few
    times.
    """
    from liza.verbs.programs import check_programs

    found = check_programs(name, run=bool(name) if run is None else run, limit=limit)
    printing.print_json(found) if as_json else printing.print_text(render_crew.format_programs(found))
    return 0 if found["ok"] else 1


@declare_command(app, "show", "liza programs show script")
def show(
    name: Annotated[str, typer.Argument(help="The program.")],
    as_json: JsonOption = False,
) -> None:
    """Show what Liza can do with a program and by what, and how it drives it."""
    from liza.verbs.programs import show_program

    found = show_program(name)
    printing.print_json(found) if as_json else printing.print_text(render_crew.format_program(found))


@declare_command(app, "trust", "liza programs trust")
def trust(as_json: JsonOption = False) -> None:
    """Let this project's liza.toml, as it is now, say what programs run. Read it first: it can name any command."""
    from liza.verbs.programs import trust_project_programs

    found = trust_project_programs()
    if as_json:
        printing.print_json(found)
        return
    named = "".join(f"\n  {command}" for command in found["commands"])
    printing.print_text(
        f"liza.toml is trusted as it is now ({found['sha256'][:12]})" + (f"; it may run:{named}" if named else "")
    )

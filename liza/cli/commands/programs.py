"""``liza programs``: which agent programs there are."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import Json, new, say
from liza.cli.render import render_crew, tell

app = new("Agent programs: which are known, which are here.")


@say(app, "list", "liza programs list")
def list_(as_json: Json = False) -> None:
    """List the programs that Liza knows how to drive, with the versions of those that are installed."""
    from liza.verbs.programs import listed

    found = listed()
    tell.json(found) if as_json else tell.out(render_crew.programs(found))


@say(app, "check", "liza programs check script:./agent.sh")
def check(
    name: Annotated[str | None, typer.Argument(help="Only this one, and try it; default: all that are here.")] = None,
    run: Annotated[
        bool | None, typer.Option("--run/--no-run", help="Have it do a small task, which asks its model.")
    ] = None,
    limit: Annotated[float, typer.Option("--limit", min=1, help="Seconds that a program has for its task.")] = 300,
    as_json: Json = False,
) -> int:
    """Check that programs are installed and work; exit 1 when one does not.

    A program that is tried takes a small task from its brief to its submission, in a project that is thrown away, with
    this crew's permissions: so its login, its permissions and its words for Liza are shown. It asks its model a few
    times.
    """
    from liza.verbs.programs import checked

    found = checked(name, run=bool(name) if run is None else run, limit=limit)
    tell.json(found) if as_json else tell.out(render_crew.programs(found))
    return 0 if found["ok"] else 1


@say(app, "show", "liza programs show script")
def show(
    name: Annotated[str, typer.Argument(help="The program.")],
    as_json: Json = False,
) -> None:
    """Show what Liza can do with a program and by what, and how it drives it."""
    from liza.verbs.programs import shown

    found = shown(name)
    tell.json(found) if as_json else tell.out(render_crew.program(found))


@say(app, "trust", "liza programs trust")
def trust(as_json: Json = False) -> None:
    """Let this project's liza.toml, as it is now, say what programs run. Read it first: it can name any command."""
    from liza.verbs.programs import trusted

    found = trusted()
    if as_json:
        tell.json(found)
        return
    named = "".join(f"\n  {command}" for command in found["commands"])
    tell.out(f"liza.toml is trusted as it is now ({found['sha256'][:12]})" + (f"; it may run:{named}" if named else ""))

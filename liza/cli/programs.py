"""``liza programs``: which agent programs there are."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli import render, tell
from liza.cli.words import Json, new, say

app = new("Agent programs: which are known, which are here.")


@say(app, "list", "liza programs list")
def list_(as_json: Json = False) -> None:
    """List the programs that Liza knows how to drive, with the versions of those that are installed."""
    from liza.verbs.programs import listed

    found = listed()
    tell.json(found) if as_json else tell.out(render.programs(found))


@say(app, "check", "liza programs check script:./agent.sh")
def check(
    name: Annotated[str | None, typer.Argument(help="Only this one; default: all that are installed.")] = None,
    as_json: Json = False,
) -> int:
    """Check that programs are installed and start; exit 1 when one does not."""
    from liza.verbs.programs import checked

    found = checked(name)
    tell.json(found) if as_json else tell.out(render.programs(found))
    return 0 if found["ok"] else 1


@say(app, "show", "liza programs show script")
def show(
    name: Annotated[str, typer.Argument(help="The program.")],
    as_json: Json = False,
) -> None:
    """Show how a program is driven: its command, its prompt, where it reads instructions."""
    from liza.verbs.programs import shown

    found = shown(name)
    tell.json(found) if as_json else tell.out(render.fields(found))


@say(app, "trust", "liza programs trust")
def trust(as_json: Json = False) -> None:
    """Let this project's liza.toml, as it is now, say what programs run. Read it first: it can name any command."""
    from liza.verbs.programs import trusted

    found = trusted()
    tell.json(found) if as_json else tell.out(f"liza.toml is trusted as it is now ({found['sha256'][:12]})")

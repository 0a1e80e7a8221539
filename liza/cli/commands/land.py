"""``liza land``: bring integration to the person's branch."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import HINT_LABEL
from liza.rules.formatting.counts import count_noun

app = create_app()


@declare_command(app, "land", "liza land --merge")
def land(
    branch: Annotated[
        str | None, typer.Argument(metavar="[BRANCH]", help="The branch; default: the branch of your checkout.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Run all gates on integration, then move the branch forward to it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what integration has that your branch has not; with --merge, bring it there. Nothing is pushed.

    Your branch only moves forward, to a commit whose gates passed. If it has commits of its own, `liza sync` brings
    them to integration first, tested.
    """
    from liza.verbs import land as verbs

    crew = find_crew()
    if merge:
        printing.print_result(verbs.land_merge(crew, branch), as_json)
        return
    landing = verbs.describe_landing(crew, branch)
    if as_json:
        printing.print_json(landing)
        return
    ahead, behind = (count_noun(landing[side], "commit") for side in ("ahead", "behind"))
    printing.print_text(
        f"{landing['integration']} at {landing['commit'][:10]}: {ahead} that {landing['branch']} has not"
    )
    if landing["tasks"]:
        printing.print_text(f"tasks: {', '.join(landing['tasks'])}")
    if landing["open"]:
        printing.print_text(f"approved and not merged yet: {', '.join(landing['open'])}")
    if landing["behind"]:
        printing.print_text(f"{landing['branch']} has {behind} that {landing['integration']} has not")
    printing.print_text(f"{HINT_LABEL}{landing['next']}")

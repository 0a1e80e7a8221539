"""``liza land``, ``liza push``: bring integration to the person's branch, and branches to origin."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import HINT_LABEL, UsageError
from liza.rules.formatting.counts import count_noun

app = create_app()
OriginOption = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="URL", help="Accept this address of origin, for this push and all later ones, then push."
    ),
]


@declare_command(app, "push", "liza push invoice-model")
def push(
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Tasks; default: all with commits that were not pushed.")
    ] = None,
    origin: OriginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push the branches of tasks to origin, as a backup: `task/ID` there has the commits of the task.

    With `config.push: auto` the crew does it after each submission. No branch is overwritten that others pushed.
    """
    from liza.verbs.push import push_tasks

    printing.print_result(push_tasks(find_crew(), tasks or (), origin), as_json)


@declare_command(app, "land", "liza land --merge")
def land(
    branch: Annotated[
        str | None, typer.Argument(metavar="[BRANCH]", help="The branch; default: the branch of your checkout.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Run all gates on integration, then move the branch forward to it.")
    ] = False,
    pr: Annotated[
        bool,
        typer.Option("--pr", help="Run all gates on integration, push it to origin, open or update a pull request."),
    ] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="NAME", help="With --pr: the branch on origin; default: as integration."),
    ] = None,
    origin: OriginOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --pr: do not ask before the push.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what integration has that your branch has not; with --merge or --pr, bring it there.

    With --merge nothing is pushed. Your branch only moves forward, to a commit whose gates passed. If it has commits
    of its own, `liza sync` brings them to integration first, tested.

    With --pr your branch stays. The pull request is opened by `gh` or `glab`; without them, open it where origin says.
    A commit that others pushed is not overwritten.
    """
    from liza.verbs import land as verbs

    if (merge and pr) or ((head is not None or origin is not None) and not pr):
        raise UsageError("--merge, --pr: choose one; --head and --origin are for --pr", "liza land --pr")
    crew = find_crew()
    if pr:
        from liza.verbs.land_request import land_pr, preview_push

        # Agents can change the URL of a remote: it is shown before anything is sent.
        preview = None if as_json else preview_push(crew, branch, head)
        if preview is not None and not yes and sys.stdin.isatty() and sys.stdout.isatty():
            typer.confirm(f"push {preview.text}?", abort=True)
            # Exactly the address that was shown: another one that was set meanwhile is refused.
            origin = origin or preview.address
        elif preview is not None:
            printing.print_notice(f"push {preview.text}")
        printing.print_result(land_pr(crew, branch, head, origin), as_json)
        return
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
    if landing["ahead"]:
        printing.print_text(f"--merge moves {landing['branch']} forward here; --pr pushes to origin for a pull request")
    printing.print_text(f"{HINT_LABEL}{landing['next']}")

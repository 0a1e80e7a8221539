"""``liza land``: show what integration has that your branch has not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.commands.merge import UntestedOption, announce_tests
from liza.commands.push import OriginOption
from liza.crew.crew import find_crew
from liza.landing import land as verbs
from liza.landing import landed_evidence
from liza.landing.land import land_pr, preview_push
from liza.model.errors import HINT_LABEL, UsageError
from liza.printing import printing
from liza.text.formats import count_noun

app = create_app()


@declare_command(
    app, "land", "liza land --merge", process=Process.DIRECT_AT_TERMINAL, position=Position(Heading.MERGES, 14)
)
def land(
    branch: Annotated[
        str | None, typer.Argument(metavar="[BRANCH]", help="The branch; default: the branch of your checkout.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Run all gates on integration, then move the branch forward to it.")
    ] = False,
    pr: Annotated[
        bool,
        typer.Option(
            "--pr", help="Run all gates on integration, push it, open or update a pull request in the project."
        ),
    ] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="NAME", help="With --pr: the branch on origin; default: as integration."),
    ] = None,
    origin: OriginOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --pr: do not ask before the push.")] = False,
    untested: UntestedOption = False,
    sheet: Annotated[
        bool, typer.Option("--sheet", help="Print the evidence about what would land, or has landed, as Markdown.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the evidence about what has landed; any clone can do it.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show what integration has that your branch has not, and which tasks it leaves; --merge or --pr bring it there.

    With --merge nothing is pushed. Your branch only moves forward, to a commit whose gates passed. If it has commits
    of its own, `liza sync` brings them to integration first, tested.

    With --pr your branch stays. The pull request is opened by `gh` or `glab`; without them, open it where origin says.
    A commit that others pushed is not overwritten. In a fork the branch goes to the fork, the request to the project.

    --verify exits 1 with a sentence for each landed commit without a true statement at refs/notes/liza.
    """
    if merge + pr + sheet + verify > 1:
        raise UsageError("--merge, --pr, --sheet, --verify: choose one", "liza land")
    if sheet or verify:
        return _verify(branch, as_json) if verify else _print_sheet(branch, as_json)
    if (head is not None or origin is not None) and not pr:
        raise UsageError("--head and --origin are for --pr", "liza land --pr")
    crew = find_crew()
    if pr:
        # The address is shown before anything is sent.
        preview = None if as_json else preview_push(crew, branch, head)
        if preview is not None and not yes and sys.stdin.isatty() and sys.stdout.isatty():
            typer.confirm(f"push {preview.text}?", abort=True)
            # Exactly the address that was shown: another one that was set meanwhile is refused.
            origin = origin or preview.address
        elif preview is not None:
            printing.print_notice(f"push {preview.text}")
        printing.print_result(land_pr(crew, branch, head, origin, untested=untested), as_json)
        return 0
    if merge:
        announce_tests(crew.board, as_json)
        printing.print_result(verbs.land_merge(crew, branch, untested=untested), as_json)
        return 0
    landing = verbs.describe_landing(crew, branch)
    if as_json:
        printing.print_json(landing)
        return 0
    ahead, behind = (count_noun(landing[side], "commit") for side in ("ahead", "behind"))
    printing.print_text(
        f"{landing['integration']} at {landing['commit'][:10]}: {ahead} that {landing['branch']} has not"
    )
    if not landing["ahead"]:
        printing.print_text(f"{landing['branch']} has all of {landing['integration']}")
    if landing["tasks"]:
        printing.print_text(f"tasks: {', '.join(landing['tasks'])}")
    for line in verbs.describe_left(landing["left"]):
        printing.print_text(line)
    if landing["behind"]:
        printing.print_text(f"{landing['branch']} has {behind} that {landing['integration']} has not")
    if landing["ahead"]:
        printing.print_text(f"--merge moves {landing['branch']} forward here; --pr pushes it for a pull request")
    printing.print_text(f"{HINT_LABEL}{landing['next']}")
    return 0


def _print_sheet(branch: str | None, as_json: bool) -> int:
    sheet = landed_evidence.render_branch(Path.cwd(), branch)
    if as_json:
        printing.print_json({"sheet": sheet})
    else:
        printing.print_text(sheet.rstrip("\n"))
    return 0


def _verify(branch: str | None, as_json: bool) -> int:
    report = landed_evidence.verify_branch(Path.cwd(), branch)
    if as_json:
        printing.print_json(report)
    else:
        printing.print_text("\n".join(_describe_report(report)))
    return 1 if report["faults"] else 0


def _describe_report(report: Mapping[str, Any]) -> list[str]:
    signatures = ", ".join(f"{count} {state}" for state, count in report["signatures"].items())
    at = f"{report['branch']} at {report['commit'][:10]}"
    landed = f"{at}: {count_noun(report['landed'], 'landed commit')}{f': {signatures}' if signatures else ''}"
    return [landed, *report["faults"]]

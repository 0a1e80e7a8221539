"""``liza doctor``: check git, the programs, the project and the crew, and print what has to be fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.model.errors import Finding
from liza.model.value_classes import replace
from liza.printing import printing
from liza.recovery.doctor import doctor as verb
from liza.system import server_control

app = create_app()


@declare_command(app, "doctor", "liza doctor --fix", position=Position(Heading.START, 2))
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Repair what crashed processes left behind.")] = False,
    tests: Annotated[bool, typer.Option("--tests", help="Run the tests, and prove which code they use.")] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="NAME",
            help="Accept the change of a setting, a ref or git's configuration that an alarm names; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check git, the programs, the project and the crew, and print what has to be fixed.

    The exit code is 0 if a crew can work here. It is 5 if a finding prevents that; with --json, `ok` is then false.

    Without a crew, it is 0 if `liza init` can begin one: a default program that is not installed is then a hint,
    because you can choose another one. It is 5 if the board of an earlier crew is kept and can be restored.
    """
    report = verb(Path.cwd(), fix=fix, tests=tests, accepted=accept or ())
    report = replace(report, findings=(*report.findings, *_find_command_server()))
    if as_json:
        printing.print_json({"ok": report.ok, "findings": report.findings, "settled": report.repaired})
        return 0 if report.ok else 5
    rows = [
        (finding.about, finding.text + (f" → {finding.hint}" if finding.hint else "")) for finding in report.findings
    ]
    rows += [("repaired", repair) for repair in report.repaired]
    width = max(len(about) for about, _ in rows)
    for about, text in rows:
        printing.print_text(f"  {about:<{width}}  {text}")
    return 0 if report.ok else 5


def _find_command_server() -> list[Finding]:
    """Return how commands are run. It never prevents a crew from working."""
    return [Finding("commands", server_control.find_server().describe())]

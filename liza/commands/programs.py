"""``liza programs``: show, check and trust agent programs, and their accounts."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.model.errors import UsageError
from liza.printing import printing, render_crew
from liza.printing.columns import align_columns, shorten_line
from liza.project import mcp_clients
from liza.project.programs import check_programs, list_programs, show_program, trust_project_programs
from liza.supervisor.program_run import TRIAL_LIMIT, trial
from liza.usage.program_accounts import AccountReport, AccountState, show_accounts

app = create_app("Show, check and trust agent programs.")


@declare_command(app, "list", "liza programs list", position=Position(Heading.START, 7))
def list_(as_json: JsonOption = False) -> None:
    """List the programs that Liza can run, with the versions of the installed ones."""
    programs = list_programs()
    printing.print_json(programs) if as_json else printing.print_text(render_crew.format_programs(programs))


@declare_command(
    app, "check", "liza programs check script:./agent.sh", process=Process.DIRECT, position=Position(Heading.START, 8)
)
def check(
    name: Annotated[
        str | None, typer.Argument(help="Check this program, with a small task; default: all installed ones.")
    ] = None,
    run: Annotated[
        bool | None, typer.Option("--run/--no-run", help="Let each program do a small task. This calls its model.")
    ] = None,
    limit: Annotated[float, typer.Option("--limit", min=1, help="Time limit of the task, in seconds.")] = TRIAL_LIMIT,
    mcp: Annotated[bool, typer.Option("--mcp", help="Try how NAME starts `liza mcp`, and nothing else.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Check that programs are installed, logged in and work. Exit 1 if one does not.

    A missing login, a sandbox that cannot start and an old version are found without a call of a model.
    With NAME or --run, a program does a small task in a temporary project, from the brief to the submission, with the
    permissions of this crew. This shows whether its login, its permissions and its output patterns work. The program
    calls its model a few times.
    """
    if mcp:
        return _check_mcp(name, as_json)
    has_trial = bool(name) if run is None else run
    report = check_programs(name, partial(trial, limit=limit) if has_trial else None)
    printing.print_json(report) if as_json else printing.print_text(render_crew.format_programs(report))
    return 0 if report["ok"] else 1


def _check_mcp(name: str | None, as_json: bool) -> int:
    if name is None:
        raise UsageError("--mcp is for one program, and none is named", "liza programs check claude --mcp")
    report = mcp_clients.check(name)
    words = {True: "yes", False: "no", None: "-"}
    rows = [[words[check.ok], check.evidence] for check in report["checks"]]
    printing.print_json(report) if as_json else printing.print_text(align_columns(rows))
    return 0 if report["ok"] else 1


@declare_command(app, "show", "liza programs show script", position=Position(Heading.START, 9))
def show(
    name: Annotated[str, typer.Argument(help="The program.")],
    as_json: JsonOption = False,
) -> None:
    """Show how Liza runs a program, and what Liza can do with it."""
    program = show_program(name)
    printing.print_json(program) if as_json else printing.print_text(render_crew.format_program(program))


@declare_command(app, "trust", "liza programs trust", position=Position(Heading.START, 10))
def trust(as_json: JsonOption = False) -> None:
    """Trust this project's liza.toml and .liza/guards.toml, in their present form. Read them first.

    The first can make Liza run any command, the second can give agents rights.
    """
    result = trust_project_programs()
    if as_json:
        printing.print_json(result)
        return
    commands = "".join(f"\n  {command}" for command in result["commands"])
    printing.print_text(
        f"{' and '.join(result['files'])} {'is' if len(result['files']) == 1 else 'are'} trusted in "
        f"{'its' if len(result['files']) == 1 else 'their'} present form ({result['sha256'][:12]})"
        + (f"; it may run:{commands}" if commands else "")
        + (f"; agents are allowed: {', '.join(result['allowing_rules'])}" if result["allowing_rules"] else "")
    )


@declare_command(
    app,
    "accounts",
    "liza programs accounts --check\nliza programs accounts --clear script/work",
    position=Position(Heading.START, 11),
)
def accounts(
    clear: Annotated[
        str | None, typer.Option("--clear", help="Use this account again, although it was limited or refused.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read each secret once, and say whether that works.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Show your accounts of agent programs: which sessions use each, and until when one is limited.

    No secret is shown. The accounts are in ~/.config/liza/accounts.toml; docs/reference/accounts.md describes the file.
    An account at its usage limit is used again when the limit ends. One whose login was refused is used again after
    --clear. Exit 1 if an account has a problem, such as a variable that is not set.
    """
    report = show_accounts(clear=clear, check=check)
    printing.print_json(report) if as_json else printing.print_text(format_accounts(report))
    return 0 if report.ok else 1


_NO_ACCOUNTS = (
    "no accounts: each program uses its own login, or the variables that it inherits.\n"
    "Several accounts of a program are listed in {file}"
)


def format_accounts(report: AccountReport) -> str:
    """Return one line per account: its state, its source, the sessions that use it; then obstacles and problems."""
    rows = [[row.id, _state(row), _source(row), ", ".join(row.used_by)] for row in report.accounts]
    lines = [align_columns(rows) or _NO_ACCOUNTS.format(file=report.file)]
    for row in report.accounts:
        if row.reason:
            again = f"liza programs accounts --clear {row.id}"
            lines.append(f"{row.id}: {shorten_line(row.reason, 200)}: {again}")
        if row.problem:
            lines.append(f"! {shorten_line(row.problem, 200)}")
        elif row.checked is not None:
            lines.append(f"{row.id}: {_check_result(row)}")
    return "\n".join([*lines, *report.notices])


def _check_result(row: AccountState) -> str:
    """Return what `--check` showed of an account without a problem."""
    if not row.checked:
        return "not checked: only the program can read its own login"
    return "its secret can be read" if row.sets else "its directory exists; its login was not checked"


def _state(row: AccountState) -> str:
    if row.problem:
        return "has a problem"
    return row.state if row.until is None else f"{row.state} until {row.until.astimezone():%Y-%m-%d %H:%M}"


def _source(row: AccountState) -> str:
    return f"{row.source} → {row.sets}" if row.sets else row.source

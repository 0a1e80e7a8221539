"""``liza init``: prepare this repository for a crew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from liza.board.address import parse_url
from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import Crew, find_crew
from liza.landing.remotes import record_first_origin
from liza.model.configuration import Confinement
from liza.model.errors import HINT_LABEL, UsageError
from liza.model.setting_limits import BYPASS, PROMPTS, VALUES, read_permissions
from liza.printing import printing
from liza.project import listeners
from liza.project.baseline import InitOptions
from liza.project.init import init as verb
from liza.project.programs import find_crew_faults

app = create_app()
ProgramOption = Annotated[
    str | None,
    typer.Option("--program", help="The program of the agents: NAME, NAME@MODEL, or script:COMMAND."),
]
_PERMISSIONS_QUESTION = """\
  {program} runs unattended: nobody answers its permission prompts.
  yes: it skips them, and can do whatever you can    no: it does only what needs no prompt
  Skip them?"""


@declare_command(
    app,
    "init",
    'liza init "Customers can pay by invoice"',
    process=Process.DIRECT_AT_TERMINAL,
    position=Position(Heading.START, 3),
)
def init(
    goal: Annotated[
        str | None, typer.Argument(metavar="[GOAL]", help="What the crew should achieve, in one sentence.")
    ] = None,
    spec: Annotated[str | None, typer.Option("--spec", help="A committed file that describes the goal.")] = None,
    test: Annotated[str | None, typer.Option("--test", help="The project's test command; default: detected.")] = None,
    no_test: Annotated[bool, typer.Option("--no-test", help="Merge without tests; recorded as untested.")] = False,
    setup: Annotated[str | None, typer.Option("--setup", help="A command that runs once in each new worktree.")] = None,
    copy: Annotated[
        list[str] | None,
        typer.Option("--copy", metavar="FILE", help="A file that git ignores and each worktree needs; repeatable."),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            listeners.SHARE, metavar="PATH", help="A socket, file or directory that all boxes see; repeatable."
        ),
    ] = None,
    checkout: Annotated[
        Literal["full", "sparse"],
        typer.Option("--checkout", help="Whether merges are tested on all files, or on a sparse checkout as yours."),
    ] = "full",
    no_proof: Annotated[
        bool, typer.Option("--no-proof", help="Do not prove that the tests use the code of their worktree.")
    ] = False,
    accept_red: Annotated[bool, typer.Option("--accept-red", help="Continue if the tests already fail.")] = False,
    budget: Annotated[float | None, typer.Option("--budget", help="Cost limit of a sprint, in dollars.")] = None,
    permissions: Annotated[
        str | None,
        typer.Option("--permissions", help="prompts: only what needs no permission prompt; bypass: skip the prompts."),
    ] = None,
    confinement: Annotated[
        Literal["auto", "required", "off"] | None,
        typer.Option("--confinement", help="Whether what agents write runs in a box; default: where that is possible."),
    ] = None,
    program: ProgramOption = None,
    integration_branch: Annotated[
        str | None,
        typer.Option(
            "--integration-branch",
            metavar="NAME",
            help="The branch that receives the merges; default: integration. An existing branch is taken over.",
        ),
    ] = None,
    worktrees: Annotated[
        Path | None,
        typer.Option(
            "--worktrees", metavar="DIR", help="Directory of the agents' worktrees; default: beside the repository."
        ),
    ] = None,
    board: Annotated[
        str | None,
        typer.Option("--board", metavar="URL", help="Put the board into PostgreSQL, for a crew on several hosts."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="With --board: name of this host in the crew.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prepare this repository for a crew: create the integration branch and the board, and run the tests.

    Your checkout and your files are not changed.
    """
    if permissions is not None:
        permissions = read_permissions(permissions)
        if permissions not in VALUES:
            raise UsageError(f"permissions are {permissions!r}, wanted {' or '.join(VALUES)}", "liza init --help")
    if host is not None and board is None:
        raise UsageError("--host names a host of a crew in PostgreSQL, and --board is missing", "liza init --help")
    options = InitOptions(
        goal=goal,
        spec=spec,
        test=test,
        no_test=no_test,
        setup=setup,
        accept_red=accept_red,
        no_proof=no_proof,
        budget=budget,
        permissions=permissions,
        confinement=None if confinement is None else Confinement(confinement),
        program=program,
        integration_branch=integration_branch,
        worktrees=worktrees,
        copied_files=tuple(copy or ()),
        checkout=checkout,
        shared=tuple(share or ()),
        board=None if board is None else parse_url(board).full_url,
        host=host,
    )
    with Facts(as_json) as facts:
        result = verb(
            Path.cwd(), options, facts.say, find_permissions_question(as_json), record_first_origin, facts.begin
        )
    if as_json:
        printing.print_json(result.to_dict())
    else:
        print_program_faults(find_crew())
        printing.print_text(f"{HINT_LABEL}{result.next}")
        printing.print_remarks(result)


def find_permissions_question(as_json: bool) -> Callable[[str], str] | None:
    """Return how to ask a person at a terminal; None without a terminal."""
    return None if as_json or not sys.stdin.isatty() or not sys.stdout.isatty() else _ask_permissions


def _ask_permissions(program: str) -> str:
    """Ask whether the program may skip its permission prompts. No answer means no."""
    question = _PERMISSIONS_QUESTION.format(program=program)
    return BYPASS if typer.confirm(question, default=False) else PROMPTS


def print_program_faults(crew: Crew) -> None:
    """Print why a program of the crew could not work, with what mends it."""
    for finding in find_crew_faults(crew):
        print_fact(finding.about, f"{finding.text} → {finding.hint}")


def print_fact(name: str, text: str) -> None:
    printing.print_now(_format_fact(name, text))


def _format_fact(name: str, text: str) -> str:
    return f"  {name:<10}{text}"


class Facts:
    """Prints each fact of an `init`, and which command runs meanwhile; nothing for ``--json``."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._running = as_json, printing.RunningLine()

    def __enter__(self) -> Facts:
        return self

    def __exit__(self, *error: object) -> None:
        self._running.end()

    def say(self, name: str, text: str) -> None:
        self._running.end()
        if not self._as_json:
            print_fact(name, text)

    def begin(self, name: str, text: str) -> None:
        if not self._as_json:
            self._running.begin(_format_fact(name, text))

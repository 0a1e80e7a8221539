"""Start: init, demo, doctor, up, down."""

from __future__ import annotations

import errno
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError

app = create_app()

ProgramOption = Annotated[
    str | None,
    typer.Option("--program", help="What agents run: a NAME, or script:COMMAND; default: as the tables say."),
]
CONSENT_QUESTION = "Unattended it needs to skip its permission prompts: it can do whatever you can. Allow it?"


@declare_command(app, "init", 'liza init "Customers can pay by invoice"')
def init(
    goal: Annotated[str | None, typer.Argument(metavar="[GOAL]", help="What you want to have, in a sentence.")] = None,
    spec: Annotated[str | None, typer.Option("--spec", help="A committed file that says it at length.")] = None,
    test: Annotated[str | None, typer.Option("--test", help="The project's test command; default: found out.")] = None,
    no_test: Annotated[bool, typer.Option("--no-test", help="Merge without testing; recorded as untested.")] = False,
    setup: Annotated[str | None, typer.Option("--setup", help="What runs once in a fresh worktree.")] = None,
    no_proof: Annotated[
        bool, typer.Option("--no-proof", help="Do not prove that the tests test the worktree they run in.")
    ] = False,
    accept_red: Annotated[bool, typer.Option("--accept-red", help="Go on although the tests fail as it is.")] = False,
    budget: Annotated[float | None, typer.Option("--budget", help="Dollars that a sprint may cost.")] = None,
    permissions: Annotated[str | None, typer.Option("--permissions", help="confined, or bypass.")] = None,
    program: ProgramOption = None,
    integration_branch: Annotated[str, typer.Option("--integration-branch", help="Where merges go.")] = "integration",
    worktrees: Annotated[
        Path | None,
        typer.Option("--worktrees", metavar="DIR", help="Where agents' worktrees lie; default: beside the repository."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make this repository ready for a crew: goal, integration branch, baseline, board.

    Your checkout and your files stay untouched.
    """
    from liza.verbs.init import InitOptions
    from liza.verbs.init import init as verb

    if permissions not in (None, "confined", "bypass"):
        raise UsageError(f"permissions are {permissions!r}, wanted confined or bypass", "liza init --help")
    options = InitOptions(
        goal=goal,
        spec=spec,
        test=test,
        no_test=no_test,
        setup=setup,
        accept_red=accept_red,
        no_proof=no_proof,
        budget=budget,
        permissions=permissions or _ask_consent(program, as_json),
        program=program,
        integration_branch=integration_branch,
        worktrees=worktrees,
    )
    said = verb(Path.cwd(), options, _print_nothing if as_json else _print_fact)
    if as_json:
        printing.print_json(said.to_dict())
    else:
        printing.print_text(f"  next: {said.next}")


def _ask_consent(program: str | None, as_json: bool) -> str:
    """Asked at a terminal only; an answer that was not given is no."""
    if as_json or not sys.stdin.isatty() or not sys.stdout.isatty():
        return "confined"
    name = (program or "the program").partition(":")[0]
    return "bypass" if typer.confirm(f"  programs  {name}. {CONSENT_QUESTION}", default=False) else "confined"


def _print_fact(name: str, text: str) -> None:
    printing.print_now(f"  {name:<10}{text}")


def _print_nothing(name: str, text: str) -> None:
    return None


@declare_command(app, "demo", "liza demo")
def demo(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A new directory; default: a temporary one.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Watch a whole crew at work on a small project, with scripted agents: nothing to install, nothing to pay."""
    from liza.demo.run import run_demo as show

    return show(directory)


@declare_command(app, "doctor", "liza doctor --fix")
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Settle what dead processes left.")] = False,
    tests: Annotated[bool, typer.Option("--tests", help="Run the tests, and prove what they test.")] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="NAME", help="Take as yours what an alarm tells of, by its name; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Look at git, the programs, the project and the crew; say what stands in the way."""
    from liza.verbs.doctor import doctor as verb

    report = verb(Path.cwd(), fix=fix, tests=tests, accepted=accept or ())
    if as_json:
        printing.print_json({"ok": report.ok, "findings": report.findings, "settled": report.repaired})
        return 0 if report.ok else 5
    rows = [(one.about, one.text + (f" → {one.hint}" if one.hint else "")) for one in report.findings]
    rows += [("settled", what) for what in report.repaired]
    width = max(len(about) for about, _ in rows)
    for about, text in rows:
        printing.print_text(f"  {about:<{width}}  {text}")
    return 0 if report.ok else 5


@declare_command(app, "up", "liza up --coders 2 --program coder=script:./agent.sh")
def up(
    coders: Annotated[int, typer.Option("--coders", min=0, help="How many coders.")] = 1,
    reviewers: Annotated[int, typer.Option("--reviewers", min=0, help="How many reviewers.")] = 1,
    planners: Annotated[int, typer.Option("--planners", min=0, help="How many planners.")] = 1,
    program: Annotated[
        list[str] | None,
        typer.Option(
            "--program",
            metavar="[WHO=]PROGRAM",
            help="What agents run: a NAME, or script:COMMAND; WHO: a role or an agent; default: as the tables say.",
        ),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Give each session a terminal, to look at with `liza attach`.")
    ] = False,
    detached: Annotated[bool, typer.Option("-d", "--detach", help="Leave them running, and come back.")] = False,
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="Stop all once the goal is reached, instead of waiting for tasks.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Start the crew: one planner, one coder, one reviewer unless you say otherwise. Ctrl+C stops all.

    Ctrl+C again stops at once, a third one kills everything. Each line has the time of day. A reader that goes away
    (`| head`) ends the output, not the crew.
    """
    from liza.up import start as crews

    of_all, named = crews.parse_programs(program or [])
    options = crews.UpOptions(
        planners=planners,
        coders=coders,
        reviewers=reviewers,
        program=of_all,
        programs=named,
        detached=detached,
        terminal=terminal,
        exit_when_done=exit_when_done,
    )
    return crews.up(find_crew(), options, _Steps(as_json))


_GOES_ON = "the crew goes on: liza status, or liza down to stop it"


class _Steps:
    """Prints what `up` says. Once the reader is gone, a pipe or a terminal, that is said on stderr, and so is from then
    on what `up` says of itself: the Ctrl+C that ends `| tee` stops the crew too."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._gone = as_json, False

    def __call__(self, agent: str, text: str, when: datetime) -> None:
        """Raises OSError for a full disk."""
        if self._gone:
            if not agent:
                printing.print_notice(f"{printing.time_of_day(when)}  {text}")
            return
        try:
            self._write(agent, text, when)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            self._gone = True
            printing.discard_output(_GOES_ON if agent else text)

    def _write(self, agent: str, text: str, when: datetime) -> None:
        if self._as_json:
            printing.print_json_line({"time": when, "agent": agent or None, "event": text})
        else:
            printing.print_row(f"{printing.time_of_day(when)}  {f'{agent:<16}' if agent else ''}", text)


@declare_command(app, "down", "liza down")
def down(
    now: Annotated[bool, typer.Option("--now", help="At once, not politely.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Then take everything of Liza out of the repository.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the crew. With --purge the repository is left as it was before init; commits found nowhere else stay."""
    from liza.verbs import down as verbs

    crew = find_crew()
    if not purge:
        printing.print_result(verbs.down(crew, now=now), as_json)
        return
    done = verbs.purge(crew)
    if as_json:
        printing.print_json(
            {
                "gone": done.deleted_refs,
                "kept": done.kept_refs,
                "unread": done.unread_files,
                "ended": done.ended,
                "left": done.left,
            }
        )
        return
    if done.ended:
        printing.print_text(f"ended first: {', '.join(done.ended)}")
    printing.print_text(
        f"Liza is gone from this repository, and with it {', '.join(done.deleted_refs) or 'no branch'}."
    )
    for ref in done.kept_refs:
        printing.print_text(f"  kept {ref}: what it holds is nowhere else")
    for name in done.unread_files:
        printing.print_text(f"  not read: {name}, neither a file nor a link to keep")
    for path in done.left:
        printing.print_text(f"  still there: {path}")

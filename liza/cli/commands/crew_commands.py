"""Commands that start and stop a crew: init, demo, doctor, up, down."""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from liza.cli.declare import JsonOption, Process, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.crew.serving import api_server
from liza.rules.errors import HINT_LABEL, Missing, UsageError
from liza.rules.paths import HISTORY_REF
from liza.system import installation

app = create_app()

ProgramOption = Annotated[
    str | None,
    typer.Option("--program", help="The program of the agents: a NAME, or script:COMMAND; default: as configured."),
]
_PERMISSIONS_QUESTION = """\
  {program} runs unattended: nobody answers its permission prompts.
  yes: it skips them, and can do whatever you can    no: it does only what needs no prompt
  Skip them?"""


@declare_command(app, "init", 'liza init "Customers can pay by invoice"', process=Process.DIRECT_AT_TERMINAL)
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
        typer.Option("--permissions", help="confined: only what needs no permission prompt; bypass: skip the prompts."),
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
    as_json: JsonOption = False,
) -> None:
    """Prepare this repository for a crew: create the integration branch and the board, and run the tests.

    Your checkout and your files are not changed.
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
        permissions=permissions,
        program=program,
        integration_branch=integration_branch,
        worktrees=worktrees,
        copied_files=tuple(copy or ()),
        checkout=checkout,
    )
    result = verb(Path.cwd(), options, _print_nothing if as_json else _print_fact, _permissions_question(as_json))
    if as_json:
        printing.print_json(result.to_dict())
    else:
        printing.print_text(f"{HINT_LABEL}{result.next}")
        printing.print_remarks(result)


def _permissions_question(as_json: bool) -> Callable[[str], str] | None:
    """Return how to ask a person at a terminal; None without a terminal."""
    return None if as_json or not sys.stdin.isatty() or not sys.stdout.isatty() else _ask_permissions


def _ask_permissions(program: str) -> str:
    """Ask whether the program may skip its permission prompts. No answer means no."""
    question = _PERMISSIONS_QUESTION.format(program=program)
    return "bypass" if typer.confirm(question, default=False) else "confined"


def _print_fact(name: str, text: str) -> None:
    printing.print_now(f"  {name:<10}{text}")


def _print_nothing(name: str, text: str) -> None:
    return None


@declare_command(app, "demo", "liza demo", process=Process.DIRECT)
def demo(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A new directory; default: a temporary one.")
    ] = None,
    native: Annotated[
        bool, typer.Option("--native", help="With the workers of examples/worker.py, which use the worker API.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Run a crew of scripted agents on a small project. It needs no AI program and costs nothing."""
    if native:
        from liza.demo.native_run import run_native_demo

        return run_native_demo(directory)
    from liza.demo.run import run_demo as show

    return show(directory)


@declare_command(app, "doctor", "liza doctor --fix")
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
    from liza.verbs.doctor import doctor as verb

    report = verb(Path.cwd(), fix=fix, tests=tests, accepted=accept or ())
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


@declare_command(app, "bug-report", "liza bug-report")
def bug_report(
    output: Annotated[
        Path | None, typer.Option("--output", metavar="F", help="The file; default: a new one below .liza.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write one file for a bug report: versions, settings, board, the ends of journal and logs, what doctor finds.

    Recognised secrets and the path of your home directory are cut. Nothing is sent. Read it before you share it: it has
    the texts of your tasks and what your agents printed.
    """
    from liza.rules.formatting.sizes import format_bytes
    from liza.verbs.bug_report import write_bug_report

    report = write_bug_report(Path.cwd(), output)
    if as_json:
        printing.print_json(report)
        return
    for row in report["files"]:
        printing.print_text(f"  {row['name']}  {format_bytes(row['size'])}{', its end' if row['cut'] else ''}")
    for name in report["left_out"]:
        printing.print_text(f"  {name} is left out: the report has its maximum size")
    printing.print_text(
        f"{report['path']}, {format_bytes(report['size'])}. Recognised secrets are cut. Nothing was sent."
    )
    printing.print_text(f"{HINT_LABEL}{shlex.join(['tar', '-xzOf', report['path']])} | less")


@declare_command(app, "up", "liza up --coders 2 --program coder=script:./agent.sh", process=Process.DIRECT)
def up(
    coders: Annotated[
        str,
        typer.Option(
            "--coders",
            metavar="N|auto[:MIN-MAX]",
            help="Number of coders; auto: start and retire them as tasks wait, by default 1 to 4.",
        ),
    ] = "1",
    reviewers: Annotated[int, typer.Option("--reviewers", min=0, help="Number of reviewers.")] = 1,
    planners: Annotated[int, typer.Option("--planners", min=0, help="Number of planners.")] = 1,
    program: Annotated[
        list[str] | None,
        typer.Option(
            "--program",
            metavar="[WHO=]PROGRAM",
            help="A NAME, or script:COMMAND; with WHO, only for this role or agent; default: as configured.",
        ),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Run each session in a terminal, for `liza attach`.")
    ] = False,
    detached: Annotated[bool, typer.Option("-d", "--detach", help="Leave the crew running, and return.")] = False,
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="Stop when the goal is reached; do not wait for new tasks.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Start the crew: one planner, one coder and one reviewer by default. Ctrl+C stops it.

    A second Ctrl+C stops it at once. A third one kills all its processes. Each line starts with the time of day. If the
    reader of the output exits (`| head`), the output ends and the crew continues.
    """
    from liza.up import start as crews

    default_program, programs = crews.parse_programs(program or [])
    number_of_coders, coders_limit = crews.parse_coders(coders)
    options = crews.UpOptions(
        planners=planners,
        coders=number_of_coders,
        coders_limit=coders_limit,
        reviewers=reviewers,
        program=default_program,
        programs=programs,
        detached=detached,
        terminal=terminal,
        exit_when_done=exit_when_done,
    )
    return crews.up(find_crew(), options, _Steps(as_json))


_CONTINUES = "the crew continues: liza status, or liza down to stop it"


class _Steps:
    """Prints the output of `up`.

    When the reader of stdout has gone (a closed pipe or terminal), this is reported on stderr, and later lines of `up`
    itself go there: the Ctrl+C that ends `| tee` also stops the crew.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._gone = as_json, False

    def __call__(self, agent: str, text: str, when: datetime) -> None:
        """Print one line. Raises OSError if the disk is full."""
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
            printing.discard_output(_CONTINUES if agent else text)

    def _write(self, agent: str, text: str, when: datetime) -> None:
        if self._as_json:
            printing.print_json_line({"time": when, "agent": agent or None, "event": text})
        else:
            from liza.cli.render import render_crew  # other commands of this module do not need it

            printing.print_row(render_crew.format_feed_start(agent, when, printing.wants_colours()), text)


@declare_command(app, "start", 'liza start "The invoice shows the due date" --program codex', process=Process.DIRECT)
def start(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What is to be done, in one sentence.")],
    program: Annotated[
        list[str] | None,
        typer.Option("--program", metavar="[WHO=]PROGRAM", help="As in `liza up`; default: as configured."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Run each session in a terminal, for `liza attach`.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Without a crew: let the program skip its permission prompts, unasked."),
    ] = False,
    copy: Annotated[
        list[str] | None,
        typer.Option("--copy", metavar="FILE", help="Without a crew: as in `liza init`; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Do one task from one sentence: `liza init` if there is no crew, add the task, then one coder and one reviewer.

    The command ends when the task is closed and no other one goes on without you. Its document is in .liza/specs.
    Repeated with the same sentence, it continues the open task. If the crew runs already, only the task is added.
    """
    from liza.crew.caller import require_person
    from liza.crew.crew import find_crew_or_none
    from liza.rules.reports.sentence_text import check_sentence
    from liza.rules.tasks.unclaimable import first_able_coder
    from liza.rules.value_classes import replace
    from liza.up import start as crews
    from liza.verbs.init import InitOptions
    from liza.verbs.init import init as init_crew
    from liza.verbs.sentence_task import add_sentence_task, refuse_new_copies

    sentence = check_sentence(sentence)
    default_program, programs = crews.parse_programs(program or [])
    crew = find_crew_or_none()
    if crew is None:
        new_crew = InitOptions(
            goal=sentence,
            permissions="bypass" if yes else None,
            program=default_program,
            copied_files=tuple(copy or ()),
        )
        say = _print_nothing if as_json else _print_fact
        init_crew(Path.cwd(), new_crew, say, _permissions_question(as_json))
        crew = find_crew()
    else:
        refuse_new_copies(crew, copy or ())
    options = crews.UpOptions(planners=0, program=default_program, programs=programs, terminal=terminal)
    require_person(crew, planner=False)
    crews.check_programs(crew, options)  # First: a mistyped program must leave no task.
    added = add_sentence_task(crew, sentence)
    task = crew.board.read().task(str(added.task))
    # An earlier coder may have failed the task: it is not given to that one again.
    coders = first_able_coder(task) if task is not None else 1
    options = replace(options, coders=coders, exit_when_done=True, task=added.task)
    steps = _Steps(as_json)
    steps("", added.message, crew.clock.now())
    printing.print_remarks(added)
    if all(map(crew.is_supervised, options.agents())):
        steps("", "the crew runs already: liza status", crew.clock.now())
        return 0
    return crews.up(crew, options, steps)


@declare_command(app, "down", "liza down")
def down(
    now: Annotated[bool, typer.Option("--now", help="End the sessions at once, without time to finish.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Then remove everything of Liza from the repository.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the crew. With --purge, then remove Liza from the repository.

    --purge keeps commits that exist nowhere else. If there are any, it also keeps the history of the board
    (refs/liza/blackboard).
    """
    from liza.verbs import down as verbs

    crew = find_crew()
    if not purge:
        printing.print_result(verbs.down(crew, now=now), as_json)
        return
    result = verbs.purge(crew)
    if as_json:
        printing.print_json(
            {
                "gone": result.deleted_refs,
                "kept": result.kept_refs,
                "unread": result.unread_files,
                "ended": result.ended,
                "left": result.left,
                "branch": result.branch,
            }
        )
        return
    if result.ended:
        printing.print_text(f"ended first: {', '.join(result.ended)}")
    printing.print_text(f"Liza was removed from this repository, with {', '.join(result.deleted_refs) or 'no branch'}.")
    for ref in result.kept_refs:
        reason = "the history of the board, kept with the refs above" if ref == HISTORY_REF else "no other ref has it"
        printing.print_text(f"  kept {ref}: {reason}")
    if result.branch is not None:
        step = shlex.join(["git", "branch", "-D", result.branch])
        printing.print_text(f"  kept refs/heads/{result.branch}: no record says that this crew created it: {step}")
    for name in result.unread_files:
        printing.print_text(f"  not read: {name}, neither a regular file nor a symlink")
    for path in result.left:
        printing.print_text(f"  not deleted: {path}")


@declare_command(app, "serve", "liza serve", process=Process.DIRECT)
def serve(
    with_crew: Annotated[bool, typer.Option("--with-crew", hidden=True)] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
    as_json: JsonOption = False,
) -> int:
    """Serve the worker API at .liza/run/api.sock and on 127.0.0.1. A running crew starts it itself.

    Ctrl+C stops it. The sessions continue without it.
    """
    try:
        from liza.server.serve import serve as run_server
    except ImportError as error:
        # Not installed, or installed for another Python: no bug of Liza.
        step = installation.install_command("--force-reinstall", *api_server.PACKAGES)
        raise Missing(f"a package of the server cannot be imported: {error}", step) from error

    def notify(text: str) -> None:
        printing.print_notice(f"{printing.time_of_day()}  {text}")

    return run_server(find_crew(), notify, with_crew=with_crew, ready_fd=ready_fd)

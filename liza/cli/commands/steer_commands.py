"""Commands that steer a crew."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from liza.cli.declare import JsonOption, Process, create_app, declare_command
from liza.cli.render import printing
from liza.cli.render.columns import strip_controls
from liza.cli.render.text_formats import shorten_line
from liza.crew.crew import Crew, find_crew
from liza.rules.errors import HINT_LABEL, UsageError
from liza.rules.formatting.counts import count_noun
from liza.rules.formatting.durations import format_duration
from liza.rules.model import Status
from liza.rules.value_classes import asdict
from liza.verbs import note as notes
from liza.verbs.answer import OpenQuestion, find_open_questions
from liza.verbs.claim import claim as claim_task
from liza.verbs.merge import merge as merge_task
from liza.verbs.merge import merge_each

app = create_app()
UntestedOption = Annotated[
    bool, typer.Option("--untested", help="Also if the tests say nothing about the commit. Red tests still refuse.")
]
OriginOption = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="URL", help="Accept this address of origin, for this push and all later ones, then push."
    ),
]


@declare_command(app, "claim", "liza claim invoice-model --agent coder-1")
def claim(
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="The agent, such as coder-1.")],
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The task; default: the first in order.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Claim a task by hand: create its worktree and start its lease. A code-reviewer claims a review.

    It does not run the set-up command (config.sandbox_setup): only a supervisor runs it. The output names the set-up
    command if you have to run it in this worktree before the test command. If a virtual environment is activated, run
    `deactivate` first: otherwise the tests may use your checkout.
    """
    printing.print_result(claim_task(find_crew(), agent, task_id), as_json)


@declare_command(app, "note", 'liza note --to invoice-pdf "use the fonts in assets/"')
def note(
    text: Annotated[str, typer.Argument(help="The text of the note.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="AGENT|TASK", help="The recipient; default: the whole crew.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Also deliver it to the running session.")] = False,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="urgent|system|normal|low",
            help="Also deliver it to the running session: at once, by an interrupt if the program can; at the next "
            "edge of a turn (--now alone); when its turn is over; or when it is idle and nothing else waits.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a note to the board."""
    crew = find_crew()
    is_delivered = now or priority is not None
    result = notes.send_note(crew, text, to, priority) if is_delivered else notes.note(crew, text, to)
    printing.print_result(result, as_json)


@declare_command(app, "pause", 'liza pause "the spec changes this afternoon"')
def pause(
    why: Annotated[str, typer.Argument(help="The reason.")] = "",
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Start nothing new until a person has reviewed the sprint.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start no new work until `liza resume`. Running sessions continue."""
    from liza.verbs import pause as verbs

    verb = verbs.checkpoint if checkpoint else verbs.pause
    printing.print_result(verb(find_crew(), why), as_json)


@declare_command(app, "resume", "liza resume")
def resume(as_json: JsonOption = False) -> None:
    """Remove the signals of `liza pause`. Refused while a budget is used up: raise it with `liza edit`."""
    from liza.verbs.resume import resume as verb

    printing.print_result(verb(find_crew()), as_json)


@declare_command(app, "sync", "liza sync\nliza sync --pr")
def sync(
    branch: Annotated[str | None, typer.Argument(help="The branch; default: the branch of your checkout.")] = None,
    accept_moved: Annotated[
        bool,
        typer.Option("--accept-moved", help="Continue if integration was moved and merged tasks are missing from it."),
    ] = False,
    pr: Annotated[
        bool, typer.Option("--pr", help="Make tasks of the red checks and comments of the open pull request instead.")
    ] = False,
    comment: Annotated[
        str | None,
        typer.Option("--comment", metavar="ID", help="With --pr: take only this comment, of any author."),
    ] = None,
    untested: UntestedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge your branch into integration, if the tests pass on the merge. This also accepts moves of integration that
    Liza did not make.

    With --pr nothing is merged: the pull request of `liza land --pr` is read through `gh` or `glab`. A red check
    becomes a task, and so does a comment of an author with write access; others are listed. `liza up` does this by
    itself."""
    if (pr and (branch is not None or accept_moved)) or (comment is not None and not pr):
        raise UsageError("--pr takes no branch and no --accept-moved; --comment is for --pr", "liza sync --pr")
    if pr:
        from liza.verbs.sync_request import sync_request

        printing.print_result(sync_request(find_crew(), comment), as_json)
        return
    from liza.verbs.sync import sync as verb

    crew = find_crew()
    announce_tests(crew, as_json)
    printing.print_result(verb(crew, branch, accept_moved=accept_moved, untested=untested), as_json)


@declare_command(app, "merge", "liza merge invoice-model")
def merge(
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="The tasks; default: the first in order.")
    ] = None,
    supervisor: Annotated[str | None, typer.Option("--for", hidden=True)] = None,
    untested: UntestedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge approved tasks into integration, if the tests pass on the merge. Supervisors do this without a request.

    Exit 1 if a task was returned to its coder, or one of several was not merged; the others are merged."""
    crew = find_crew()
    if len(tasks or ()) > 1:
        result = merge_each(crew, tasks or (), untested=untested)
        is_done = not result.details["failed"]
    else:
        if supervisor is None:
            announce_tests(crew, as_json)
        result = merge_task(crew, tasks[0] if tasks else None, supervisor, untested=untested)
        is_done = result.status != Status.INTEGRATION_FAILED and not result.details.get("returned")
    printing.print_result(result, as_json)
    raise typer.Exit(0 if is_done else 1)


def announce_tests(crew: Crew, as_json: bool) -> None:
    """Tell a person at a terminal which tests the command waits for: they can take minutes."""
    command = crew.board.read().config.integration_command if sys.stderr.isatty() and not as_json else None
    if command:
        printing.print_notice(f"testing with: {command}")


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


@declare_command(app, "land", "liza land --merge", process=Process.DIRECT_AT_TERMINAL)
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
    as_json: JsonOption = False,
) -> None:
    """Show what integration has that your branch has not; with --merge or --pr, bring it there.

    With --merge nothing is pushed. Your branch only moves forward, to a commit whose gates passed. If it has commits
    of its own, `liza sync` brings them to integration first, tested.

    With --pr your branch stays. The pull request is opened by `gh` or `glab`; without them, open it where origin says.
    A commit that others pushed is not overwritten. In a fork the branch goes to the fork, the request to the project.
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
        printing.print_result(land_pr(crew, branch, head, origin, untested=untested), as_json)
        return
    if merge:
        announce_tests(crew, as_json)
        printing.print_result(verbs.land_merge(crew, branch, untested=untested), as_json)
        return
    landing = verbs.describe_landing(crew, branch)
    if as_json:
        printing.print_json(landing)
        return
    ahead, behind = (count_noun(landing[side], "commit") for side in ("ahead", "behind"))
    printing.print_text(
        f"{landing['integration']} at {landing['commit'][:10]}: {ahead} that {landing['branch']} has not"
    )
    if not landing["ahead"]:
        printing.print_text(f"{landing['branch']} has all of {landing['integration']}")
    if landing["tasks"]:
        printing.print_text(f"tasks: {', '.join(landing['tasks'])}")
    if landing["open"]:
        printing.print_text(f"approved and not merged yet: {', '.join(landing['open'])}")
    if landing["behind"]:
        printing.print_text(f"{landing['branch']} has {behind} that {landing['integration']} has not")
    if landing["ahead"]:
        printing.print_text(f"--merge moves {landing['branch']} forward here; --pr pushes it for a pull request")
    printing.print_text(f"{HINT_LABEL}{landing['next']}")


@declare_command(
    app, "answer", 'liza answer\nliza answer invoice-mail "billing@shop.example"', process=Process.DIRECT_AT_TERMINAL
)
def answer(
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this task; default: all tasks with questions.")
    ] = None,
    answers: Annotated[list[str] | None, typer.Argument(metavar="[ANSWER]...", help="One answer per question.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer the open questions of tasks. At a terminal it asks them one by one; elsewhere it prints a list.

    An empty answer leaves a task unchanged.
    """
    crew = find_crew()
    if task_id is not None and answers:
        _send_answers(crew, task_id, answers, as_json)
        return
    open_questions = find_open_questions(crew, task_id)
    if as_json:
        printing.print_json({"questions": [asdict(open_question) for open_question in open_questions]})
    elif not open_questions:
        printing.print_text("no task has an open question")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _ask_each_question(crew, open_questions)
    else:
        printing.print_wrapped("\n".join(_format_question(open_question) for open_question in open_questions))


def _ask_each_question(crew: Crew, open_questions: Sequence[OpenQuestion]) -> None:
    for number, open_question in enumerate(open_questions, 1):
        printing.print_wrapped(f"{_question_heading(open_question)}   {number} of {len(open_questions)}")
        texts: list[str] = []
        for question in open_question.questions:
            printing.print_wrapped(f"  {strip_controls(question)}")
            texts.append(typer.prompt("  >", default="", show_default=False, prompt_suffix=" "))
            if not texts[-1].strip():
                break
        if all(text.strip() for text in texts):
            _send_answers(crew, open_question.task, texts, as_json=False)
        else:
            printing.print_text(f"  unchanged; answer later: {open_question.next}")


def _send_answers(crew: Crew, task_id: str, answers: Sequence[str], as_json: bool) -> None:
    from liza.verbs import task as verbs

    printing.print_result(verbs.unblock(crew, task_id, answers), as_json)


def _question_heading(open_question: OpenQuestion) -> str:
    since = f" (for {format_duration(open_question.seconds)})" if open_question.seconds is not None else ""
    return f"{open_question.task}{since}: {shorten_line(open_question.reason or open_question.description, 160)}"


def _format_question(open_question: OpenQuestion) -> str:
    return "\n".join(
        [
            _question_heading(open_question),
            *(f"  {question}" for question in open_question.questions),
            f"    {open_question.next}",
        ]
    )

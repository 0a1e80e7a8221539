"""Commands that an agent runs for its own run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from liza.cli.commands import hook_command
from liza.cli.declare import JsonOption, create_app, declare_command, parse_details, parse_duration
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError
from liza.rules.governance import board_reports
from liza.rules.tasks.claims import EXTENSION_EXAMPLE
from liza.verbs import ready as ready_verbs
from liza.verbs.block import block as block_task
from liza.verbs.exit import exit_run
from liza.verbs.handoff import HandoffNote
from liza.verbs.handoff import handoff as hand_off
from liza.verbs.heartbeat import heartbeat as renew_lease
from liza.verbs.report import report as add_report
from liza.verbs.report import resolve as resolve_report
from liza.verbs.submit import submit as submit_work
from liza.verbs.verdict import verdict as give_verdict

app = create_app()
_COMMENT = "--comment"


class PairedCommentsCommand(TyperCommand):
    """A command whose option ``--comment`` has two values, and can be repeated: typer has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined, rest = [], iter(args)
        for word in rest:
            joined.append(word)
            if word == "--":
                return super().parse_args(ctx, [*joined, *rest])
            if word == _COMMENT:
                location, text = next(rest, None), next(rest, None)
                if location is None or text is None:
                    raise _comment_error()
                joined.append(f"{location}\n{text}")
        return super().parse_args(ctx, joined)


def split_pairs(joined: Sequence[str]) -> list[tuple[str, str]]:
    """Return the two values of each ``--comment``. Raises UsageError if only one was given."""
    pairs = [comment.partition("\n") for comment in joined]
    if not all(separator for _, separator, _ in pairs):
        raise _comment_error()
    return [(location, text) for location, _, text in pairs]


def _comment_error() -> UsageError:
    return UsageError("--comment needs FILE:LINE and a text", 'liza verdict reject "…" --comment src/tax.py:12 "…"')


@declare_command(app, "ready", "liza ready")
def ready(as_json: JsonOption = False) -> None:
    """Print the brief of this run, and record that the agent has read it. The first command of a session."""
    crew = find_crew()
    result = ready_verbs.ready(crew)
    if as_json:
        printing.print_result(result, as_json)
    else:
        printing.print_text(str(result.details["brief"]))
    ready_verbs.acknowledge_messages(crew, result.details["messages"])


@declare_command(app, "submit", "git commit -am 'Round half up' && liza submit")
def submit(as_json: JsonOption = False) -> None:
    """Submit the committed work of this run's task for review."""
    printing.print_result(submit_work(find_crew()), as_json)


@declare_command(
    app,
    "verdict",
    'liza verdict approve "ran npm test: 214 pass; the three clauses of DONE WHEN hold"\n'
    'liza verdict reject "src/tax.py:12 rounds down; 0.125 must give 0.13" --task invoice-model\n'
    'liza verdict reject "rounding" --task invoice-model --comment src/tax.py:12 "rounds down"',
    cls=PairedCommentsCommand,
)
def verdict(
    word: Annotated[str, typer.Argument(metavar="approve|reject", help="Your verdict.")],
    text: Annotated[str, typer.Argument(help="What you ran and saw, or what is wrong and how you saw it.")],
    task: Annotated[
        str | None, typer.Option("--task", help="The task, if a person gives the verdict. An agent's run has a task.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option("--commit", help="The commit that you judge; default: the one under review.")
    ] = None,
    comment: Annotated[
        list[str] | None,
        typer.Option(
            "--comment",
            metavar="FILE:LINE TEXT",
            help="A comment on a line of the rejected commit, for the coder's next brief; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Approve or reject the commit under review. The verdict is binding."""
    comments = split_pairs(comment or ())
    result = give_verdict(find_crew(), word, text, task_id=task, commit=commit, comments=comments)
    printing.print_result(result, as_json)


@declare_command(app, "block", 'liza block "the sender address is nowhere in the spec" --ask "Which address?"')
def block(
    why: Annotated[str, typer.Argument(help="Why the task cannot continue.")],
    ask: Annotated[
        list[str] | None, typer.Option("--ask", help="A question that a person can answer; 1 to 3 times.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the task with questions for a person."""
    printing.print_result(block_task(find_crew(), why, ask or []), as_json)


@declare_command(app, "handoff", 'liza handoff "the model is done, its tests pass" --next "write the PDF test"')
def handoff(
    done: Annotated[str, typer.Argument(metavar="DONE", help="What is done; for a planner, what was decided.")],
    next_step: Annotated[str, typer.Option("--next", help="The first thing that the next session should do.")] = "",
    approach: Annotated[str | None, typer.Option("--approach", help="The approach you chose, and why.")] = None,
    blockers: Annotated[str | None, typer.Option("--blockers", help="What prevents progress.")] = None,
    file: Annotated[list[str] | None, typer.Option("--file", help="A changed file; repeatable.")] = None,
    step: Annotated[list[str] | None, typer.Option("--step", help="A further step; repeatable.")] = None,
    planned: Annotated[bool, typer.Option("--done", help="For a planner: planning is finished.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hand the work over to a new session, and write what it must know. With --done, a planner ends its planning."""
    note = HandoffNote(done, next_step, approach, blockers, tuple(file or ()), tuple(step or ()))
    printing.print_result(hand_off(find_crew(), note, done=planned), as_json)


@declare_command(
    app,
    "report",
    'liza report discovery "shop/cart.py adds prices as floats" --urgency deferred --recommend "use Decimal"\n'
    'liza report trade_off "cached per process" --detail what=cache --detail why=speed --detail debt_created=yes\n'
    'liza report resolve d-3 "the cart is replaced in the next sprint"',
)
def report(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="discovery|KIND|resolve",
            help="discovery, a kind of anomaly such as trade_off, spec_ambiguity, workaround, or resolve.",
        ),
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT|ID", help="What others must know; for resolve, the id of a report.")
    ],
    why: Annotated[str | None, typer.Argument(metavar="[WHY]", help="For resolve: the reason.")] = None,
    urgency: Annotated[
        str | None,
        typer.Option("--urgency", metavar="immediate|deferred", help="Of a discovery: immediate wakes a planner now."),
    ] = None,
    recommend: Annotated[
        str | None, typer.Option("--recommend", metavar="TEXT", help="Of a discovery: what you would do.")
    ] = None,
    detail: Annotated[list[str] | None, typer.Option("--detail", metavar="K=V", help="A detail; repeatable.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Record a discovery or an anomaly; the run continues. Or resolve one.

    A discovery is a fault outside the scope of your task. It waits for a planner, which makes it a task
    (`liza task add --from-discovery ID`) or resolves it. An anomaly is a problem or a decision of your own task that
    others must know. `liza status` shows what is open. Only people and planners resolve."""
    given = {"urgency": urgency, "recommendation": recommend}
    details = {name: value for name, value in given.items() if value is not None}
    if kind == board_reports.RESOLVE:
        if detail or details or why is None:
            raise UsageError("resolve takes the id of a report and the reason", f'liza report resolve {text} "why"')
        printing.print_result(resolve_report(find_crew(), text, why), as_json)
        return
    if why is not None:
        raise UsageError(f"{why!r} is a second text; quote the whole text", f'liza report {kind} "TEXT"')
    if details and kind != board_reports.DISCOVERY:
        raise UsageError(f"--urgency and --recommend are for a discovery, not for {kind}", "liza report --help")
    printing.print_result(add_report(find_crew(), kind, text, {**parse_details(detail or []), **details}), as_json)


@declare_command(app, "heartbeat", EXTENSION_EXAMPLE)
def heartbeat(
    extend: Annotated[str | None, typer.Option("--extend", metavar="TIME", help="Duration: 90s, 15m, 2h.")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: the task's history has it.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Renew the lease of this run, or extend it before a long step without output, with the reason.

    A supervisor renews the lease of its agent itself. An extension is for a task or a review.
    """
    seconds = None if extend is None else parse_duration(extend, EXTENSION_EXAMPLE)
    printing.print_result(renew_lease(find_crew(), seconds, reason), as_json)


@declare_command(app, "exit", "liza exit 42")
def exit_command(
    code: Annotated[str, typer.Argument(metavar="0|1|42", help="0 done, 1 failed, 42 start a new session.")],
    as_json: JsonOption = False,
) -> None:
    """Record the result of this run, for scripts. It overrides the exit code of the program."""
    printing.print_result(exit_run(find_crew(), code), as_json)


@declare_command(app, "hook", 'echo \'{"session_id": "4f2c"}\' | liza hook pi session_start')
def hook(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="The agent program.")],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The program's name of the event.")],
) -> None:
    """Answer a hook of an agent program: its JSON on stdin, the answer on stdout. Liza installs these hooks itself.

    The exit code is 0, also after an error. It is 2 if the hook refuses a tool call and the program expects this code.
    """
    raise typer.Exit(hook_command.run_hook([program, event]))

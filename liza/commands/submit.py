"""``liza submit``: submit committed work for review: of this run's task, or of a branch that Liza did not start."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, refuse_path_of_session
from liza.crew.crew import Crew, find_crew
from liza.model.errors import LizaError, UsageError
from liza.model.value_classes import replace
from liza.printing import printing
from liza.tasks.submit import submit as submit_run

if TYPE_CHECKING:
    from liza.tasks.rules.submissions import SubmissionWishes

app = create_app()


@declare_command(
    app,
    "submit",
    "git commit -am 'Round half up' && liza submit\n"
    "liza submit fix-rounding          # a branch\n"
    "liza submit .                     # this worktree, of any tool\n"
    "liza submit 12 --review human     # a pull request of origin\n"
    "liza submit . --merge             # review, test and merge it now",
    in_sessions=True,
    direct_options=("--merge",),
    position=Position(Heading.AGENTS, 2),
)
def submit(
    work: Annotated[
        str | None,
        typer.Argument(
            metavar="[BRANCH|PR|.]", help="Work that Liza did not start: a branch, a request, this worktree."
        ),
    ] = None,
    task_id: Annotated[str | None, typer.Option("--id", help="The id of its task; default: of its branch.")] = None,
    desc: Annotated[str | None, typer.Option("--desc", help="What it does; default: as its commits say.")] = None,
    review: Annotated[
        str | None, typer.Option("--review", metavar="agent|human", help="Who reviews it; default: an agent.")
    ] = None,
    fix: Annotated[
        str | None, typer.Option("--fix", metavar="author|crew", help="Who mends it if it comes back; default: author.")
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Review, test and merge it here, without a crew.")] = False,
    program: Annotated[
        list[str] | None, typer.Option("--program", help="With --merge: the reviewer's program, as in `liza up`.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Submit committed work for review: without an argument that of this run's task.

    With a branch, a pull request or `.` it is work that Liza did not start: it becomes a task, is reviewed, tested and
    merged as any other, and goes back to its author. The same word submits its next commits. The other tool's worktree
    and the branch are only read. With --merge the exit code is 76 if only a person can go on.
    """
    if work is None:
        if any((task_id, desc, review, fix, merge, program)):
            raise UsageError("these options are for the work of a branch, and none is named", "liza submit . --merge")
        printing.print_result(submit_run(find_crew()), as_json)
        return 0
    if program and not merge:
        step = shlex.join(["liza", "submit", work, "--merge", *(f"--program={name}" for name in program)])
        raise UsageError("--program is the reviewer of --merge; a crew's reviewer is that of `liza up`", step)
    refuse_path_of_session(work, "submit your own task", "liza submit")
    # Loaded now: the submissions of runs, which are most, need none of it.
    from liza.tasks.rules.submissions import check_wishes

    wishes = check_wishes(task_id, desc, review, fix)
    return _submit_work(work, wishes, tuple(program or ()) if merge else None, as_json)


def _recover_merge(crew: Crew, by: str, task_id: str) -> None:
    """Recover the merge of a task if its merger has died."""
    # Loaded now: a merge is under way at few submissions.
    from liza.merging.merge_recovery import recover_if_dead

    recover_if_dead(crew, by, task_id)


def _submit_work(word: str, wishes: SubmissionWishes, programs: tuple[str, ...] | None, as_json: bool) -> int:
    """Submit the work that the word names, and with ``programs`` merge it here; return the exit code."""
    # Loaded now, as in `submit`.
    from liza.landing.submitted_requests import find_request, is_request
    from liza.tasks import submission

    crew, code = submission.find_shared_crew(), 0
    submission.require_author(crew)
    try:
        source = find_request(crew, word) if is_request(crew, word) else submission.find_work(crew, word)
        result = submission.submit_work(crew, source, wishes, _recover_merge)
        if programs is None:
            result = submission.add_next_step(crew, result)
        else:
            from liza.commands.up import Steps
            from liza.supervisor.submission_run import merge_submitted

            steps = Steps(as_json)
            steps("", result.message, crew.clock.now())
            printing.print_remarks(result)
            result, code = merge_submitted(crew, str(result.task), programs, steps)
    except LizaError as error:
        error.hint = submission.type_step(crew, error.hint)
        raise
    printing.print_result(replace(result, next=submission.type_step(crew, result.next)), as_json)
    return code

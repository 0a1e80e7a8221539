"""``liza task``: commands with which people and planners change tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from liza.commands._declare import (
    Heading,
    JsonOption,
    Position,
    Process,
    create_app,
    declare_command,
    read_text,
    split_names,
)
from liza.commands._last_copy import show_last_copy
from liza.crew.crew import find_crew
from liza.landing.import_issue import add_from_issue
from liza.merging.merge_recovery import recover_if_dead
from liza.model.errors import UsageError
from liza.model.value_classes import replace
from liza.printing import printing, render_crew, render_task
from liza.tasks import task as verbs
from liza.tasks.permission import permit as permit_commit
from liza.tasks.rules.backlog import TaskFields
from liza.view.task_rows import list_archived, list_tasks, show_task

app = create_app("Show and change tasks.")

TaskIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task.")]
Desc = Annotated[str | None, typer.Option("--desc", help="What is to be done.")]
Done = Annotated[
    str | None, typer.Option("--done", help="The condition for done; a command must be able to disprove it.")
]
Scope = Annotated[str | None, typer.Option("--scope", help="The files that the task may change.")]
Spec = Annotated[
    str | None, typer.Option("--spec", help="The document that specifies it: committed, or under .liza/specs/.")
]
Priority = Annotated[int | None, typer.Option("--priority", help="1 (first) to 9; default 3.")]
Depends = Annotated[str | None, typer.Option("--depends", metavar="A,B", help="Tasks that must be merged first.")]
MaxIterationsOption = Annotated[int | None, typer.Option("--max-iterations", help="Maximum number of tries.")]
EpicOption = Annotated[
    str | None,
    typer.Option("--epic", metavar="NAME", help="Merge it into epic/NAME, which lands when all its tasks are closed."),
]
TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="BRANCH", help="Merge it into this branch instead of integration.")
]
ReviewOption = Annotated[
    str | None, typer.Option("--review", metavar="agent|human", help="Who reviews it; human: no agent, only a person.")
]
Draft = Annotated[bool, typer.Option("--draft", help="Keep the task a DRAFT, so that it cannot be claimed.")]
File = Annotated[str | None, typer.Option("--file", metavar="F|-", help="Tasks as YAML, one or a list; - is stdin.")]


@declare_command(
    app,
    "list",
    "liza task list --status to-fix,asks\nliza task list --archived",
    in_sessions=True,
    position=Position(Heading.LOOK, 2),
)
@show_last_copy
def list_(
    status: Annotated[
        str | None,
        typer.Option("--status", help="Only tasks in this state: to-fix, or REJECTED; several: A,B."),
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="The closed tasks in the archive instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of the board, or those of the archive."""
    if archived:
        closed = list_archived(find_crew(), split_names(status))
        printing.print_json(closed) if as_json else printing.print_wrapped(
            render_crew.format_archived_tasks(closed["tasks"], printing.wants_colours())
        )
        return
    listed = list_tasks(find_crew(), split_names(status))
    if as_json:
        printing.print_json(listed.to_dict())
        return
    printing.print_wrapped(render_crew.format_task_list(listed.tasks, printing.wants_colours()))
    if listed.archived:
        printing.print_wrapped(render_crew.format_archive_note(sum(listed.archived.values())))


@declare_command(
    app,
    "show",
    "liza task show invoice-model\nliza task show invoice-model --all",
    in_sessions=True,
    position=Position(Heading.LOOK, 3),
)
@show_last_copy
def show(
    task_id: TaskIdArgument,
    all_: Annotated[
        bool,
        typer.Option("--all", help="With its status on the board, its run, its conversation and whole commit ids."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a task: its fields, its history, and where its work is."""
    task = show_task(find_crew(), task_id)
    if as_json:
        printing.print_json(task)
    else:
        printing.print_wrapped(render_task.format_task(task, printing.wants_colours(), with_all=all_))


@declare_command(
    app,
    "add",
    'liza task add --id invoice-model --desc "An invoice has lines and a total" \\\n'
    '    --done "pytest tests/test_invoice.py passes" --scope src/invoice.py --spec docs/invoices.md\n'
    "liza task add --file tasks.yaml    # for example with this text:\n"
    "- id: invoice-pdf\n"
    "  description: An invoice is printed as PDF\n"
    "  done_when: pytest tests/test_pdf.py passes\n"
    "  scope: [src/pdf.py, tests/test_pdf.py]\n"
    "  spec_ref: docs/invoices.md\n"
    "  depends_on: [invoice-model]",
    process=Process.DIRECT_AT_TERMINAL,
    in_sessions=True,
    position=Position(Heading.STEER, 1),
)
def add(
    task_id: Annotated[str | None, typer.Option("--id", help="The task's id: letters, digits, '-' and '_'.")] = None,
    desc: Desc = None,
    done: Done = None,
    scope: Scope = None,
    spec: Spec = None,
    priority: Priority = None,
    depends: Depends = None,
    most: MaxIterationsOption = None,
    epic: EpicOption = None,
    target: TargetOption = None,
    review: ReviewOption = None,
    draft: Draft = False,
    discovery: Annotated[
        str | None,
        typer.Option("--from-discovery", metavar="ID", help="The discovery that the task is for; it is closed."),
    ] = None,
    file: File = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="gh:N", help="An issue of origin on GitHub; its text becomes the document."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a task. With --file, add several tasks: all or none. An incomplete task becomes a DRAFT.

    A file has the fields of one task, or a list of tasks: id, description, done_when, scope, spec_ref, priority,
    depends_on, max_iterations, epic, target, review, draft, from_discovery.

    At a terminal it asks for each missing field. An empty answer leaves the field empty.

    With --from, read an issue through `gh`: its title is the description, its text the document, quoted as text from
    outside. Give --done and --scope, or add them later with `liza task edit`."""
    fields = TaskFields(
        id=task_id or "",
        description=desc,
        done_when=done,
        scope=scope,
        spec_ref=spec,
        priority=priority,
        depends_on=split_names(depends),
        max_iterations=most,
        epic=epic,
        target=target,
        review=review,
        draft=draft,
        from_discovery=discovery,
    )
    if file is not None:
        if fields != TaskFields("") or task_id is not None or source is not None:
            raise UsageError("--file cannot be combined with other options", "liza task add --file F")
        tasks = verbs.parse_tasks(read_text(file))
    elif source is not None:
        if spec is not None:
            raise UsageError("--from brings its own document, without --spec", f"liza task add --from {source}")
        printing.print_result(add_from_issue(find_crew(), source, fields), as_json)
        return
    else:
        if not as_json and not draft and _is_person_at_terminal():
            crew = find_crew()  # Without a crew, the answers would be lost.
            fields = _ask_missing(fields, lambda new_id: verbs.check_new_id(crew, new_id))
        elif not fields.id:
            raise _no_id_error()
        tasks = (fields,)
    printing.print_result(verbs.add(find_crew(), tasks), as_json)


def _no_id_error() -> UsageError:
    return UsageError("--id is missing", "liza task add --help")


_QUESTIONS = (
    ("id", "id (letters, digits, - and _)"),
    ("description", "what is to be done"),
    ("done_when", "done when (a command must be able to disprove it)"),
    ("scope", "files that it may change"),
    ("spec_ref", "document that specifies it"),
)


def _is_person_at_terminal() -> bool:
    """Whether a person can answer. A session of an agent in tmux has a terminal, too, and no person reads it."""
    return not os.environ.get("LIZA_RUN") and sys.stdin.isatty() and sys.stdout.isatty()


def _ask_missing(fields: TaskFields, check_id: Callable[[str], None]) -> TaskFields:
    """Return the fields with the answers to what was not given. An empty answer leaves a field out.

    ``check_id`` raises an error for an id that cannot be used, before the next question: the answers would be lost.
    """
    if fields.id:
        check_id(fields.id)
    missing = [(name, question) for name, question in _QUESTIONS if not getattr(fields, name)]
    if missing:
        printing.print_text("Enter leaves an answer out; without all of them, the task becomes a draft.")
    answers: dict[str, Any] = {}
    for name, question in missing:
        answers[name] = typer.prompt(f"  {question}", default="", show_default=False).strip()
        if name == "id":
            if not answers[name]:
                raise _no_id_error()
            check_id(answers[name])
    return replace(fields, **{name: text for name, text in answers.items() if text})


@declare_command(
    app,
    "edit",
    "liza task edit invoice-pdf --depends invoice-model --priority 1",
    in_sessions=True,
    position=Position(Heading.STEER, 2),
)
def edit(
    task_id: TaskIdArgument,
    desc: Desc = None,
    done: Done = None,
    scope: Scope = None,
    spec: Spec = None,
    priority: Priority = None,
    depends: Depends = None,
    most: MaxIterationsOption = None,
    review: ReviewOption = None,
    draft: Draft = False,
    as_json: JsonOption = False,
) -> None:
    """Change the fields of a task that is not claimed. A DRAFT can be claimed when it is complete."""
    fields = TaskFields(
        id=task_id,
        description=desc,
        done_when=done,
        scope=scope,
        spec_ref=spec,
        priority=priority,
        depends_on=split_names(depends),
        max_iterations=most,
        review=review,
        draft=draft,
    )
    printing.print_result(verbs.edit(find_crew(), fields), as_json)


@declare_command(
    app,
    "unblock",
    'liza task unblock invoice-mail --answer "billing@shop.example"',
    in_sessions=True,
    position=Position(Heading.STEER, 3),
)
def unblock(
    task_id: TaskIdArgument,
    answer: Annotated[
        list[str] | None, typer.Option("--answer", help="An answer, in the order of the questions; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer the questions of a BLOCKED task. It can then be claimed again."""
    printing.print_result(verbs.unblock(find_crew(), task_id, answer or []), as_json)


@declare_command(
    app,
    "supersede",
    'liza task supersede invoice-mail --file tasks.yaml --because "two concerns in one task"',
    in_sessions=True,
    position=Position(Heading.STEER, 5),
)
def supersede(
    task_id: TaskIdArgument,
    because: Annotated[str, typer.Option("--because", help="The root cause.")] = "",
    by: Annotated[str | None, typer.Option("--by", metavar="A,B", help="Tasks that exist already.")] = None,
    file: File = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a task by other tasks."""
    new_tasks = verbs.parse_tasks(read_text(file)) if file is not None else ()
    successors = verbs.Successors(new_tasks, split_names(by) or ())
    printing.print_result(verbs.supersede(find_crew(), task_id, successors, because, recover_if_dead), as_json)


@declare_command(
    app,
    "drop",
    'liza task drop invoice-fax "no customer has a fax"',
    in_sessions=True,
    position=Position(Heading.STEER, 6),
)
def drop(
    task_id: TaskIdArgument,
    why: Annotated[str, typer.Argument(help="Why the task is not needed any more.")] = "",
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the tasks that depend on it.")] = False,
    unlink: Annotated[bool, typer.Option("--unlink", help="Remove it from the dependencies of other tasks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Abandon a task. The work done for it is saved."""
    if cascade and unlink:
        raise UsageError("--cascade and --unlink contradict each other", f'liza task drop {task_id} "…" --cascade')
    dependants = "cascade" if cascade else "unlink" if unlink else None
    printing.print_result(verbs.drop(find_crew(), task_id, why, dependants, recover_if_dead), as_json)


@declare_command(
    app,
    "permit",
    "liza task permit fix-parser 9fceb02d0ae598e95dc970b74767f19372d61af8",
    position=Position(Heading.STEER, 8),
)
def permit(
    task_id: TaskIdArgument,
    commit: Annotated[str, typer.Argument(metavar="COMMIT", help="The whole id of the submitted commit.")],
    as_json: JsonOption = False,
) -> None:
    """Permit that the tests of a stranger's commit run, in a box without network. Read it first: `liza diff ID`.

    The author cannot write to the repository, or is unknown. Before the permission nothing of the work runs. It ends
    with the next commit.
    """
    printing.print_result(permit_commit(find_crew(), task_id, commit), as_json)


@declare_command(app, "release", "liza task release invoice-pdf", position=Position(Heading.STEER, 7))
def release(task_id: TaskIdArgument, as_json: JsonOption = False) -> None:
    """Release a task from its coder: end the session, save the work, and let the task be claimed again."""
    printing.print_result(verbs.release(find_crew(), task_id), as_json)

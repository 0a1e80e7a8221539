"""``liza task``: what people and planners make of tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command, read_text, split_names
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError
from liza.rules.tasks.backlog import TaskFields

app = create_app("Look at tasks, and change what is to be done.")

TaskIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task.")]
Desc = Annotated[str | None, typer.Option("--desc", help="What is to be done.")]
Done = Annotated[str | None, typer.Option("--done", help="When it is done: what a command can show false.")]
Scope = Annotated[str | None, typer.Option("--scope", help="What it may touch.")]
Spec = Annotated[str | None, typer.Option("--spec", help="The document behind it: committed, or under .liza/specs/.")]
Priority = Annotated[int | None, typer.Option("--priority", help="1 (first) to 9; default 3.")]
Depends = Annotated[str | None, typer.Option("--depends", metavar="A,B", help="Tasks that must be merged before.")]
MaxIterationsOption = Annotated[int | None, typer.Option("--max-iterations", help="How many tries it may take.")]
Draft = Annotated[bool, typer.Option("--draft", help="Keep it from being taken for now.")]
File = Annotated[str | None, typer.Option("--file", metavar="F|-", help="Tasks as YAML, one or a list; - is stdin.")]


@declare_command(app, "list", "liza task list --status BLOCKED")
def list_(
    status: Annotated[str | None, typer.Option("--status", help="Only tasks of this status; a,b for several.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks."""
    from liza.cli.render import render_crew
    from liza.verbs.show_task import list_tasks

    found = list_tasks(find_crew(), split_names(status))
    if as_json:
        printing.print_json({"tasks": found})
    else:
        printing.print_wrapped(render_crew.format_task_list(found, printing.wants_colours()))


@declare_command(app, "show", "liza task show invoice-model")
def show(task_id: TaskIdArgument, as_json: JsonOption = False) -> None:
    """Show a task: its fields, its history, where its work lies."""
    from liza.cli.render import render_task
    from liza.verbs.show_task import show_task

    found = show_task(find_crew(), task_id)
    if as_json:
        printing.print_json(found)
    else:
        printing.print_wrapped(render_task.format_task(found, printing.wants_colours()))


@declare_command(
    app,
    "add",
    'liza task add --id invoice-model --desc "An invoice has lines and a total" \\\n'
    '    --done "pytest tests/test_invoice.py passes" --scope src/invoice.py --spec docs/invoices.md',
)
def add(
    task_id: Annotated[str | None, typer.Option("--id", help="Its id: letters, digits, '-' and '_'.")] = None,
    desc: Desc = None,
    done: Done = None,
    scope: Scope = None,
    spec: Spec = None,
    priority: Priority = None,
    depends: Depends = None,
    most: MaxIterationsOption = None,
    draft: Draft = False,
    file: File = None,
    as_json: JsonOption = False,
) -> None:
    """Add a task, or with --file several: all or none. What is incomplete becomes a DRAFT."""
    from liza.verbs import task as verbs

    if file is not None:
        if any(one is not None for one in (task_id, desc, done, scope, spec, priority, depends, most)) or draft:
            raise UsageError("--file says everything: no other option goes with it", "liza task add --file F")
        wanted = verbs.parse_tasks(read_text(file))
    elif task_id is None:
        raise UsageError("--id is missing", "liza task add --help")
    else:
        wanted = (TaskFields(task_id, desc, done, scope, spec, priority, split_names(depends), most, draft),)
    printing.print_result(verbs.add(find_crew(), wanted), as_json)


@declare_command(app, "edit", "liza task edit invoice-pdf --depends invoice-model --priority 1")
def edit(
    task_id: TaskIdArgument,
    desc: Desc = None,
    done: Done = None,
    scope: Scope = None,
    spec: Spec = None,
    priority: Priority = None,
    depends: Depends = None,
    most: MaxIterationsOption = None,
    draft: Draft = False,
    as_json: JsonOption = False,
) -> None:
    """Change the text of a task that nobody has taken; a DRAFT that is now complete can be taken."""
    from liza.verbs import task as verbs

    wanted = TaskFields(task_id, desc, done, scope, spec, priority, split_names(depends), most, draft)
    printing.print_result(verbs.edit(find_crew(), wanted), as_json)


@declare_command(app, "unblock", 'liza task unblock invoice-mail --answer "billing@shop.example"')
def unblock(
    task_id: TaskIdArgument,
    answer: Annotated[list[str] | None, typer.Option("--answer", help="In the order of the questions.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer what a BLOCKED task asks; it can then be taken again."""
    from liza.verbs import task as verbs

    printing.print_result(verbs.unblock(find_crew(), task_id, answer or []), as_json)


@declare_command(
    app, "supersede", 'liza task supersede invoice-mail --file tasks.yaml --because "two concerns in one task"'
)
def supersede(
    task_id: TaskIdArgument,
    because: Annotated[str, typer.Option("--because", help="The root cause.")] = "",
    by: Annotated[str | None, typer.Option("--by", metavar="A,B", help="Tasks that are there already.")] = None,
    file: File = None,
    as_json: JsonOption = False,
) -> None:
    """Let other tasks take the place of this one."""
    from liza.verbs import task as verbs

    new_tasks = verbs.parse_tasks(read_text(file)) if file is not None else ()
    successors = verbs.Successors(new_tasks, split_names(by) or ())
    printing.print_result(verbs.supersede(find_crew(), task_id, successors, because), as_json)


@declare_command(app, "drop", 'liza task drop invoice-fax "nobody has a fax"')
def drop(
    task_id: TaskIdArgument,
    why: Annotated[str, typer.Argument(help="Why it is not wanted any more.")] = "",
    cascade: Annotated[bool, typer.Option("--cascade", help="Drop what depends on it, too.")] = False,
    unlink: Annotated[bool, typer.Option("--unlink", help="Let what depends on it go on without it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give a task up; what was done for it is saved."""
    from liza.verbs import task as verbs

    if cascade and unlink:
        raise UsageError("--cascade and --unlink contradict each other", f"liza task drop {task_id} WHY --cascade")
    dependants = "cascade" if cascade else "unlink" if unlink else None
    printing.print_result(verbs.drop(find_crew(), task_id, why, dependants), as_json)


@declare_command(app, "release", "liza task release invoice-pdf")
def release(task_id: TaskIdArgument, as_json: JsonOption = False) -> None:
    """Take a task away from its coder: its session is ended, its work saved, and it can be taken again."""
    from liza.verbs import task as verbs

    printing.print_result(verbs.release(find_crew(), task_id), as_json)

"""``liza task``: what people and planners make of tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import Json, listed, new, say, text_of
from liza.cli.render import tell
from liza.crew.crew import find_crew
from liza.rules.errors import Usage
from liza.rules.tasks.backlog import Wanted

app = new("Look at tasks, and change what is to be done.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The task.")]
Desc = Annotated[str | None, typer.Option("--desc", help="What is to be done.")]
Done = Annotated[str | None, typer.Option("--done", help="When it is done: what a command can show false.")]
Scope = Annotated[str | None, typer.Option("--scope", help="What it may touch.")]
Spec = Annotated[str | None, typer.Option("--spec", help="The document behind it: committed, or under .liza/specs/.")]
Priority = Annotated[int | None, typer.Option("--priority", help="1 (first) to 9; default 3.")]
Depends = Annotated[str | None, typer.Option("--depends", metavar="A,B", help="Tasks that must be merged before.")]
Most = Annotated[int | None, typer.Option("--max-iterations", help="How many tries it may take.")]
Draft = Annotated[bool, typer.Option("--draft", help="Keep it from being taken for now.")]
File = Annotated[str | None, typer.Option("--file", metavar="F|-", help="Tasks as YAML, one or a list; - is stdin.")]


@say(app, "list", "liza task list --status BLOCKED")
def list_(
    status: Annotated[str | None, typer.Option("--status", help="Only tasks of this status; a,b for several.")] = None,
    as_json: Json = False,
) -> None:
    """List the tasks."""
    from liza.cli.render import render_crew
    from liza.verbs.show import tasks

    found = tasks(find_crew(), listed(status))
    if as_json:
        tell.json({"tasks": found})
    else:
        tell.text(render_crew.task_list(found, tell.colours()))


@say(app, "show", "liza task show invoice-model")
def show(task_id: Id, as_json: Json = False) -> None:
    """Show a task: its fields, its history, where its work lies."""
    from liza.cli.render import render_task
    from liza.verbs.show import task

    found = task(find_crew(), task_id)
    if as_json:
        tell.json(found)
    else:
        tell.text(render_task.task(found, tell.colours()))


@say(
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
    most: Most = None,
    draft: Draft = False,
    file: File = None,
    as_json: Json = False,
) -> None:
    """Add a task, or with --file several: all or none. What is incomplete becomes a DRAFT."""
    from liza.verbs import task as verbs

    if file is not None:
        if any(one is not None for one in (task_id, desc, done, scope, spec, priority, depends, most)) or draft:
            raise Usage("--file says everything: no other option goes with it", "liza task add --file F")
        wanted = verbs.parse_file(text_of(file))
    elif task_id is None:
        raise Usage("--id is missing", "liza task add --help")
    else:
        wanted = (Wanted(task_id, desc, done, scope, spec, priority, listed(depends), most, draft),)
    tell.answer(verbs.add(find_crew(), wanted), as_json)


@say(app, "edit", "liza task edit invoice-pdf --depends invoice-model --priority 1")
def edit(
    task_id: Id,
    desc: Desc = None,
    done: Done = None,
    scope: Scope = None,
    spec: Spec = None,
    priority: Priority = None,
    depends: Depends = None,
    most: Most = None,
    draft: Draft = False,
    as_json: Json = False,
) -> None:
    """Change the text of a task that nobody has taken; a DRAFT that is now complete can be taken."""
    from liza.verbs import task as verbs

    wanted = Wanted(task_id, desc, done, scope, spec, priority, listed(depends), most, draft)
    tell.answer(verbs.edit(find_crew(), wanted), as_json)


@say(app, "unblock", 'liza task unblock invoice-mail --answer "billing@shop.example"')
def unblock(
    task_id: Id,
    answer: Annotated[list[str] | None, typer.Option("--answer", help="In the order of the questions.")] = None,
    as_json: Json = False,
) -> None:
    """Answer what a BLOCKED task asks; it can then be taken again."""
    from liza.verbs import task as verbs

    tell.answer(verbs.unblock(find_crew(), task_id, answer or []), as_json)


@say(app, "supersede", 'liza task supersede invoice-mail --file tasks.yaml --because "two concerns in one task"')
def supersede(
    task_id: Id,
    because: Annotated[str, typer.Option("--because", help="The root cause.")] = "",
    by: Annotated[str | None, typer.Option("--by", metavar="A,B", help="Tasks that are there already.")] = None,
    file: File = None,
    as_json: Json = False,
) -> None:
    """Let other tasks take the place of this one."""
    from liza.verbs import task as verbs

    new_tasks = verbs.parse_file(text_of(file)) if file is not None else ()
    successors = verbs.Successors(new_tasks, listed(by) or ())
    tell.answer(verbs.supersede(find_crew(), task_id, successors, because), as_json)


@say(app, "drop", 'liza task drop invoice-fax "nobody has a fax"')
def drop(
    task_id: Id,
    why: Annotated[str, typer.Argument(help="Why it is not wanted any more.")] = "",
    cascade: Annotated[bool, typer.Option("--cascade", help="Drop what depends on it, too.")] = False,
    unlink: Annotated[bool, typer.Option("--unlink", help="Let what depends on it go on without it.")] = False,
    as_json: Json = False,
) -> None:
    """Give a task up; what was done for it is saved."""
    from liza.verbs import task as verbs

    if cascade and unlink:
        raise Usage("--cascade and --unlink contradict each other", f"liza task drop {task_id} WHY --cascade")
    dependants = "cascade" if cascade else "unlink" if unlink else None
    tell.answer(verbs.drop(find_crew(), task_id, why, dependants), as_json)


@say(app, "release", "liza task release invoice-pdf")
def release(task_id: Id, as_json: Json = False) -> None:
    """Take a task away from its coder: its session is ended, its work saved, and it can be taken again."""
    from liza.verbs import task as verbs

    tell.answer(verbs.release(find_crew(), task_id), as_json)

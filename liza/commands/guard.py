"""``liza guard``: ask what agents may do with their tools."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.guards.guard import GuardQuestion, ask_guards
from liza.printing import printing

app = create_app("Ask what agents may do with their tools.")


@app.callback()
def guard() -> None:
    """Ask what agents may do with their tools."""


@declare_command(
    app, "test", "liza guard test 'git push -f' --role coder", in_sessions=True, position=Position(Heading.LOOK, 14)
)
def ask(
    command: Annotated[str | None, typer.Argument(help="A shell command. It is not run.")] = None,
    role: Annotated[str, typer.Option("--role", help="planner, coder or code-reviewer.")] = "coder",
    tool: Annotated[
        str | None, typer.Option("--tool", help="The name of a tool, for example Write; default: a shell.")
    ] = None,
    path: Annotated[str | None, typer.Option("--path", help="A path that the tool writes or reads.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="The task, whose worktree and branch are used.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Say whether the guards would let an agent use a tool, and why. Exit 1 if they would not. Nothing is run.

    The rules are those that come with Liza and those of .liza/guards.toml.
    """
    answer = ask_guards(GuardQuestion(command, role, tool, path, task))
    if as_json:
        printing.print_json(answer)
    else:
        decision = "allowed" if answer.allowed else "denied"
        rule = f" by rule {answer.rule}" if answer.rule else ": no rule concerns it"
        printing.print_text(f"{decision}{rule}" + (f"\n{answer.reason}" if answer.reason else ""))
        for notice in answer.notices:
            printing.print_notice(notice)
    return 0 if answer.allowed else 1

"""``liza run``: start an agent program by hand."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from liza.board.contract import Board
from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.printing import printing
from liza.supervisor.program_run import RunRequest, run_program

app = create_app()


@declare_command(
    app,
    "run",
    "liza run claude\nliza run codex@gpt-5.2-codex\nliza run script:./agent.sh",
    process=Process.DIRECT,
    position=Position(Heading.START, 12),
)
def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="As for up --program: liza programs list.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARG...]", help="Arguments for the program.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Start a program in this terminal, with its brief, and no supervisor.

    In a worktree that you claimed (liza claim) it gets the brief of the task, hooks, and the environment of a session;
    the task stays yours when it ends. Elsewhere it gets the general context of the crew in its instructions file, which
    git does not see, and which is as before when the program ends. The exit status is that of the program.
    """
    crew = find_crew()
    _refuse_work(crew.board, program)
    request = RunRequest(program, tuple(args or ()), os.environ, Path.cwd())
    return run_program(crew, request, printing.print_notice)


def _refuse_work(board: Board, word: str) -> None:
    """Raise UsageError if the word is a task, or a sentence that is to become one."""
    if ":" not in word and " " in word.strip() and "/" not in word:
        raise UsageError(
            f"{word!r} is no program; `liza start` makes a task of it", shlex.join(["liza", "start", word])
        )
    if board.read().task(word) is not None:
        raise UsageError(f"{word} is a task, not a program; the crew works on it", "liza up")

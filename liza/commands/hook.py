"""``liza hook``: a program waits for it at each step, so it raises nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from liza.api.hook import Hook
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.system import ancestors

app = create_app()
MAX_PAYLOAD = 32 << 20  # bytes of one event


@declare_command(
    app,
    "hook",
    'echo \'{"session_id": "4f2c"}\' | liza hook pi session_start',
    in_sessions=True,
    position=Position(Heading.AGENTS, 9),
)
def hook(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="The agent program.")],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The program's name of the event.")],
    as_json: JsonOption = False,
) -> None:
    """Answer a hook of an agent program: its JSON on stdin, the answer on stdout. Liza installs these hooks itself.

    The answer is as the program expects it, also with --json.

    The exit code is 2 if the hook refuses a tool call and the program expects this code, and 1 if the event is unknown:
    the installed hook then refuses a tool call, and ignores any other event. Otherwise it is 0, also after an error.
    """
    raise typer.Exit(run_hook([program, event]))


def run_hook(words: Sequence[str]) -> int:
    """Answer one event of a program; return the exit code. Raises nothing."""
    words = [word for word in words if word != "--json"]
    if len(words) != 2 or not _is_outermost_run():
        return 0
    hook = Hook(words[0], words[1], _read_payload(), os.environ)
    answer = hook.reply()
    try:
        sys.stdout.write(answer.out)
        sys.stdout.flush()
        sys.stderr.write(answer.err)
        sys.stderr.flush()
    except (OSError, ValueError) as error:
        # The reader has gone: the content is delivered again later. Python must not flush stdout again at its exit.
        hook.log_error(error)
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return answer.code
    hook.acknowledge_delivered()
    return answer.code


def _is_outermost_run() -> bool:
    """Whether this runs in a session, and in no outer session. A sandbox may hide the processes above."""
    run, root = os.environ.get("LIZA_RUN"), os.environ.get("LIZA_ROOT")
    return bool(run and root and ancestors.find_outermost_run(Path(root)) in (None, run))


def _read_payload() -> bytes:
    """Return the program's input; empty at a terminal or if stdin cannot be read."""
    try:
        return b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_PAYLOAD)
    except (OSError, ValueError):
        return b""

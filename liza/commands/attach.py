"""``liza attach``: attach to the terminal of an agent's program, to see it and to type."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import Crew, find_crew
from liza.model.errors import LizaError, UsageError
from liza.printing import printing
from liza.printing.pager import exit_with_reader
from liza.printing.render_session import SessionStyle, format_followed
from liza.view import attach as verbs
from liza.view.attach import StreamAttachment

app = create_app()


@declare_command(app, "attach", "liza attach coder-1", process=Process.DIRECT, position=Position(Heading.LOOK, 8))
def attach(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent, or one of its runs, such as coder-1.7.")],
    read_only: Annotated[bool, typer.Option("-r", "--read-only", help="Only look: input is ignored.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Attach to the terminal of an agent's program, to see it and to type. C-b d detaches; the program continues.

    Of a session over ACP the events are shown, and each line that you type is a prompt; Ctrl+C detaches. With --json,
    only print the command that attaches; it is empty over ACP.
    """
    crew = find_crew()
    session = verbs.attach(crew, agent, read_only=read_only)
    if isinstance(session, verbs.StreamAttachment):
        if as_json:
            printing.print_json({"agent": session.agent, "run": session.run, "command": []})
        else:
            _show_stream(crew, session, read_only=read_only)
        return
    if as_json:
        printing.print_json({"agent": session.agent, "run": session.run, "command": session.command})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("attach needs a terminal; stdin or stdout is not one", f"liza logs {session.agent} -f")
    # The person may be inside tmux: that is another server, but tmux refuses to start while TMUX is set.
    environ = {name: value for name, value in os.environ.items() if name != "TMUX"}
    os.execvpe(session.command[0], session.command, environ)


def _show_stream(crew: Crew, session: StreamAttachment, *, read_only: bool) -> None:
    """Print a session over ACP until Ctrl+C, and send each line of stdin as a prompt."""

    def send_lines() -> None:
        for line in sys.stdin:
            if line.strip():
                try:
                    printing.print_notice(verbs.send_line(crew, session.agent, line.strip()))
                except (LizaError, OSError) as error:
                    printing.print_notice(f"not sent: {error}")

    if not read_only:
        threading.Thread(target=send_lines, name="prompts", daemon=True).start()
    exit_with_reader()
    style = SessionStyle(printing.text_width(), printing.wants_colours())
    for row in format_followed(verbs.follow_stream(crew, session), style, session.run):
        printing.print_now(f"{row}\n")

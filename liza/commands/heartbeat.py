"""``liza heartbeat``: renew the lease of this run, or extend it before a long step without output, with the reason."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, parse_duration
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.claim import HeartbeatRequest
from liza.tasks.claim import heartbeat as renew_lease
from liza.tasks.rules.leases import EXTENSION_EXAMPLE

app = create_app()


@declare_command(app, "heartbeat", EXTENSION_EXAMPLE, in_sessions=True, position=Position(Heading.AGENTS, 7))
def heartbeat(
    extend: Annotated[str | None, typer.Option("--extend", metavar="TIME", help="Duration: 90s, 15m, 2h.")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: the task's history has it.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Renew the lease of this run, or extend it before a long step without output, with the reason.

    A supervisor renews the lease of its agent itself. An extension is for a task or a review.
    """
    seconds = None if extend is None else parse_duration(extend, EXTENSION_EXAMPLE)
    request = HeartbeatRequest(extend_seconds=seconds, reason=reason)
    printing.print_result(renew_lease(find_crew(), request), as_json)

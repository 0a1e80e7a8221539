"""``liza host``: the hosts of a crew whose board is in PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.board.rules.host_leases import HostCondition
from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.hosts import host_list
from liza.hosts.host_list import HostLine
from liza.printing import printing
from liza.printing.columns import align_columns, paint
from liza.text.formats import format_duration, format_time

app = create_app("List, run and forget the hosts of a crew.")
_COLOURS = {"alive": "green", "silent": "yellow", "lost": "red"}


@declare_command(app, "list", "liza host list", position=Position(Heading.BOARD, 30))
def list_command(as_json: JsonOption = False) -> None:
    """List the hosts: whether each is heard, the agents and duties that it has, and when others take them over."""
    hosts = host_list.list_hosts(find_crew())
    printing.print_json({"hosts": hosts}) if as_json else printing.print_wrapped(format_hosts(hosts))


@declare_command(app, "run", "liza host run", process=Process.DIRECT, position=Position(Heading.BOARD, 31))
def run(as_json: JsonOption = False) -> None:
    """Renew the lease of this host until it is stopped. `liza up` starts this by itself; systemd may do it instead."""
    from liza.supervisor import host_work

    result = host_work.run_host(find_crew(), lambda line: None if as_json else printing.print_now(f"{line}\n"))
    printing.print_result(result, as_json)


@declare_command(app, "forget", "liza host forget h2", position=Position(Heading.BOARD, 32))
def forget(
    name: Annotated[str, typer.Argument(metavar="HOST", help="The name of the host.")], as_json: JsonOption = False
) -> None:
    """Say that a host is dead, so that other hosts take over its agents and duties at once."""
    printing.print_result(host_list.forget_host(find_crew(), name), as_json)


def _format_takeover(line: HostLine) -> str:
    if line.condition is HostCondition.ALIVE:
        return ""
    return (
        f"others may take over {'since' if line.condition is HostCondition.LOST else 'at'} {format_time(line.takeover)}"
    )


def format_hosts(hosts: tuple[HostLine, ...]) -> str:
    """Return one line for each host."""
    if not hosts:
        return "no host works on this crew: liza up"
    colour = printing.wants_colours()
    return align_columns([
        (
            line.name + (" (here)" if line.is_here else ""),
            paint(line.condition.value, _COLOURS[line.condition], colour),
            f"heard {format_duration(line.silent)} ago",
            ", ".join(line.agents),
            ", ".join(line.duties),
            _format_takeover(line),
            paint(line.next, "bold", colour),
        )
        for line in hosts
    ])  # fmt: skip

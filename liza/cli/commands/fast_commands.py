"""The most frequent commands, without the option parser: it costs 40 ms per call."""

from __future__ import annotations

from liza.cli.render import printing
from liza.crew.crew import find_crew


def ready(as_json: bool) -> None:
    """Print the brief of this run, and record that it was read."""
    from liza.verbs import ready as verbs

    crew = find_crew()
    result = verbs.ready(crew)
    if as_json:
        printing.print_result(result, as_json)
    else:
        printing.print_text(str(result.details["brief"]))
    verbs.acknowledge_messages(crew, result.details["messages"])


def submit(as_json: bool) -> None:
    """Submit the work for review."""
    from liza.verbs.submit import submit as verb

    printing.print_result(verb(find_crew()), as_json)


def heartbeat(as_json: bool, extend: int | None = None) -> None:
    """Extend the lease of this run."""
    from liza.verbs.heartbeat import heartbeat as verb

    printing.print_result(verb(find_crew(), extend), as_json)


def status(as_json: bool) -> None:
    """Print the status of the crew."""
    from liza.verbs.status import status as verb

    summary = verb(find_crew())
    if as_json:
        printing.print_json(summary)
        return
    from liza.cli.render import render_crew

    printing.print_wrapped(render_crew.format_status(summary, printing.wants_colours()))


FAST_FUNCTIONS = {"ready": ready, "submit": submit, "heartbeat": heartbeat, "status": status}

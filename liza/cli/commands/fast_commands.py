"""The most frequent commands, without the option parser: `quick_words` parses their usual words.

The functions return the exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from liza.cli.render import printing
from liza.crew.crew import Crew, find_crew


def ready(as_json: bool = False) -> int:
    """Print the brief of this run, and record that it was read."""
    from liza.verbs import ready as verbs

    crew = find_crew()
    result = verbs.ready(crew)
    if as_json:
        printing.print_result(result, as_json)
    else:
        printing.print_text(str(result.details["brief"]))
    verbs.acknowledge_messages(crew, result.details["messages"])
    return 0


def submit(as_json: bool = False) -> int:
    """Submit the work for review."""
    from liza.verbs.submit import submit as verb

    printing.print_result(verb(find_crew()), as_json)
    return 0


def heartbeat(as_json: bool = False, extend: int | None = None, reason: str = "") -> int:
    """Renew or extend the lease of this run."""
    from liza.verbs.heartbeat import heartbeat as verb

    printing.print_result(verb(find_crew(), extend, reason), as_json)
    return 0


def status(as_json: bool = False) -> int:
    """Print the status of the crew."""
    from liza.verbs.status import status as verb

    summary = verb(find_crew())
    if as_json:
        printing.print_json(summary)
        return 0
    from liza.cli.render import render_crew

    printing.print_wrapped(render_crew.format_status(summary, printing.wants_colours()))
    return 0


def verdict(
    word: str,
    text: str,
    task: str | None = None,
    commit: str | None = None,
    comments: Sequence[tuple[str, str]] | None = None,
    as_json: bool = False,
) -> int:
    """Approve or reject the commit under review."""
    from liza.verbs.verdict import verdict as verb

    printing.print_result(verb(find_crew(), word, text, task_id=task, commit=commit, comments=comments or ()), as_json)
    return 0


def block(why: str, ask: Sequence[str] | None = None, as_json: bool = False) -> int:
    """Stop the task with questions for a person."""
    from liza.verbs.block import block as verb

    printing.print_result(verb(find_crew(), why, list(ask or [])), as_json)
    return 0


def handoff(
    done: str,
    next_step: str = "",
    approach: str | None = None,
    blockers: str | None = None,
    file: Sequence[str] | None = None,
    step: Sequence[str] | None = None,
    planned: bool = False,
    as_json: bool = False,
) -> int:
    """Hand the work over to a new session."""
    from liza.verbs.handoff import HandoffNote
    from liza.verbs.handoff import handoff as verb

    note = HandoffNote(done, next_step, approach, blockers, tuple(file or ()), tuple(step or ()))
    printing.print_result(verb(find_crew(), note, done=planned), as_json)
    return 0


def exit_run(code: str, as_json: bool = False) -> int:
    """Record the result of this run."""
    from liza.verbs.exit import exit_run as verb

    printing.print_result(verb(find_crew(), code), as_json)
    return 0


def claim(agent: str, task_id: str | None = None, as_json: bool = False) -> int:
    """Claim a task by hand."""
    from liza.verbs.claim import claim as verb

    printing.print_result(verb(find_crew(), agent, task_id), as_json)
    return 0


def note(
    text: str, to: str | None = None, now: bool = False, priority: str | None = None, as_json: bool = False
) -> int:
    """Add a note to the board."""
    from liza.verbs import note as verbs

    crew = find_crew()
    is_delivered = now or priority is not None
    result = verbs.send_note(crew, text, to, priority) if is_delivered else verbs.note(crew, text, to)
    printing.print_result(result, as_json)
    return 0


def merge(
    task_id: str | None = None, supervisor: str | None = None, as_json: bool = False, untested: bool = False
) -> int:
    """Merge an approved task into integration, or a batch; return 1 if one was returned to its coder."""
    from liza.rules.model import Status
    from liza.verbs.merge import merge as verb

    crew = find_crew()
    if supervisor is None:
        announce_tests(crew, as_json)
    result = verb(crew, task_id, supervisor, untested=untested)
    printing.print_result(result, as_json)
    return 1 if result.status == Status.INTEGRATION_FAILED or result.details.get("returned") else 0


def announce_tests(crew: Crew, as_json: bool) -> None:
    """Tell a person at a terminal which tests the command waits for: they can take minutes."""
    command = crew.board.read().config.integration_command if sys.stderr.isatty() and not as_json else None
    if command:
        printing.print_notice(f"testing with: {command}")


FAST_FUNCTIONS: Final[dict[str, Callable[..., int]]] = {
    "ready": ready,
    "submit": submit,
    "heartbeat": heartbeat,
    "status": status,
    "verdict": verdict,
    "block": block,
    "handoff": handoff,
    "exit": exit_run,
    "claim": claim,
    "note": note,
    "merge": merge,
}

"""watch: each thing that needs a person, said once until it is settled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict as fields_of

from liza.verbs.crew import Crew
from liza.verbs.status import changes, found_alarms


def watch(crew: Crew) -> Iterator[dict[str, Any]]:
    """The alarms that stand, and each new one as it comes up; one that clears and comes back is said again.

    ``since`` is when it was seen first here.
    """
    standing: set[tuple[str, str, str]] = set()
    for _ in changes(crew):
        state = crew.board.read()
        found = {(one.kind, one.about, one.next): one for one in found_alarms(crew, state, crew.evidence(state))}
        for key, alarm in found.items():
            if key not in standing:
                yield {**fields_of(alarm), "since": crew.clock.now()}
        standing = set(found)

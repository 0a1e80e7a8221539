"""What the verbs that end a run leave in the run's directory."""

from __future__ import annotations

from liza.crew.crew import Crew


def record_run_result(crew: Crew, run: str, word: str) -> None:
    """Leave the closing word of ``run``; a person who works by hand has no run directory, and needs none."""
    directory = crew.run_dir(run)
    if directory.exists():
        directory.mark_ready(crew.clock.now(), "verb")
        directory.set_closing_code(word)

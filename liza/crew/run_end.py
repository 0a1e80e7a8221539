"""Record the end of a run in its directory, for the verbs that end a run."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.programs.session.run_directory import ReadyEvidence


def record_run_result(crew: Crew, run: str, code: str) -> None:
    """Write the closing code of ``run``; does nothing for a person who works by hand and has no run directory."""
    directory = crew.run_dir(run)
    if directory.exists():
        directory.mark_ready(crew.clock.now(), ReadyEvidence.CLOSING_VERB)
        directory.set_closing_code(code)

"""A crew that a campaign can have again and again, in one place: runs and work trees know where they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.journeys.crews import Crew, started


class World:
    """A crew that can be had again and again in one place."""

    def __init__(self, at: Path, prepare: Callable[[Crew], None]) -> None:
        self.at, self.root, self.notes, self.template = at, at / "project", at / "notes", at / "template"
        with started(at, inside=True) as crew:
            self.crew = crew
            prepare(crew)
        shutil.copytree(self.notes, at / "notes-first")
        self.root.rename(self.template)
        self.said = at / "said"

    def renew(self) -> None:
        for place, first in ((self.root, self.template), (self.notes, self.at / "notes-first")):
            if place.exists():
                shutil.rmtree(place)
            shutil.copytree(first, place, symlinks=True)
        self.crew = Crew(self.root, self.notes)

    def told(self) -> str:
        return self.said.read_text()[-3000:] if self.said.exists() else ""

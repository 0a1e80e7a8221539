"""What journeys begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.crews import Crew, started


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """A project with a crew of its own, without a test command, with settings that lose no time."""
    with started(tmp_path) as made:
        yield made


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Crew]:
    """As ``crew``, with sessions and tests in boxes, in which scripts can write their notes. The test needs bwrap."""
    with started(tmp_path, confinement="required", shared=[str(tmp_path / "notes")]) as made:
        yield made


@pytest.fixture(params=["off", pytest.param("required", marks=pytest.mark.needs("bwrap"))])
def crew_both_ways(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Crew]:
    """As ``crew``, and as ``confined``."""
    with started(tmp_path, confinement=request.param, shared=[str(tmp_path / "notes")]) as made:
        yield made

"""Hosts with agents at work that are cut off for 90 s: their sessions end first, and others finish the tasks.

Takes 150 s for each five cuts.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.campaign.cut_crew import cut_once
from tests.postgresql import PostgreSQL

pytestmark = pytest.mark.campaign
CUTS = int(os.environ.get("LIZA_CUTS", "20"))
AT_ONCE = int(os.environ.get("LIZA_CUTS_AT_ONCE", "5"))


def cut_several(server: PostgreSQL, clocks: list[int]) -> None:
    """Cut a host off for each of the clocks. Nothing may be wrong."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda clock: cut_once(server, clock), clocks))
    for name in sorted({name for _, figures in results for name in figures}):
        values = sorted(figures[name] for _, figures in results if name in figures)
        print(f"{name}: {values[0]:.1f} to {values[-1]:.1f} s, {len(values)} cuts")
    found = [sentence for wrong, _ in results for sentence in wrong]
    print(*found, sep="\n")
    assert found == []


def test_a_cut_host_has_ended_before_others_finish_its_tasks(postgresql: PostgreSQL) -> None:
    cut_several(postgresql, [0] * CUTS)


@pytest.mark.needs("cc")
def test_a_host_with_a_wrong_clock_ends_in_time_too(postgresql: PostgreSQL) -> None:
    cut_several(postgresql, [600, -600, 600, -600])

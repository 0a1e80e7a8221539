"""Sessions in boxes: ordinary work, and how they end."""

from __future__ import annotations

import pytest

from tests.journeys.crews import APPROVE, WORK, Crew

pytestmark = pytest.mark.needs("bwrap")


def test_a_confined_task_goes_from_claim_to_merge(confined: Crew) -> None:
    confined.add("one")
    confined.agent("coder-1", confined.script("coder.sh", f"{WORK}\nenv > $NOTES/env\n"))
    confined.agent("code-reviewer-1", confined.script("reviewer.sh", APPROVE))
    confined.wait_status("one", "MERGED")
    assert "LIZA_CONFINED=yes" in (confined.notes / "env").read_text()
    assert confined.git("show", "integration:one.txt").startswith("one by coder-1.")

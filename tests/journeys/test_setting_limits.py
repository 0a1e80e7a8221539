"""An edited board whose settings have numbers that no clock can add: they do not count, and the crew works."""

from __future__ import annotations

import json

import pytest

from tests.journeys.crews import WORK, Crew


@pytest.mark.campaign
def test_settings_no_clock_can_add_are_violations_and_stop_nothing(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    text = crew.paths.state.read_text()
    huge = f"  lease_duration: {10**15}\n  hung_after: {10**12}\n"
    huge += f"  poll_interval: {10**11}\n  restart_after_crash: -1.0\n"
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("  restart_after_crash:")]
    lines = [line for line in lines if not line.startswith("  lease_duration:")]
    crew.paths.state.write_text("".join(lines).replace("\nconfig:\n", f"\nconfig:\n{huge}"))
    violations = json.loads(crew.run("validate", "--json").stdout)["violations"]
    names = ["lease_duration", "hung_after", "poll_interval", "restart_after_crash"]
    assert sorted(row["field"] for row in violations) == sorted(names)
    status = json.loads(crew.run("status", "--json").stdout)
    assert sorted(row["about"] for row in status["alerts"] if row["kind"] == "unusable_setting") == sorted(names)
    assert "liza config set lease_duration --default" in crew.run("status").stdout
    crew.liza("claim", "task-1", "--agent", "coder-1")
    crew.agent("coder-2", crew.script("coder", WORK))
    crew.wait_status("task-2", "READY_FOR_REVIEW")
    assert f"lease_duration: {10**15}" in crew.paths.state.read_text()
    crew.liza("down")

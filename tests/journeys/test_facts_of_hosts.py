"""What hosts of a crew share beside the board: messages, what sessions cost, and what agents do."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from liza.crew.crew import find_crew
from liza.model.spending import LedgerEntry, TokenUsage
from liza.usage import ledger
from tests.conftest import until
from tests.journeys.test_code_of_hosts import Clone, Hosts
from tests.journeys.test_code_of_hosts import hosts as hosts

WAIT = 'echo ready > "$NOTES/began"\nsleep 300\n'
READ = """\
echo ready > "$NOTES/began"
until liza ready | tee -a "$NOTES/heard" | grep -q "prices are gross"; do sleep 0.2; done
sleep 300
"""


def agent_of(clone: Clone, name: str) -> dict[str, Any]:
    """An agent as `liza status` shows it."""
    row: dict[str, Any] = next(row for row in clone.tell("status")["agents"] if row["id"] == name)
    return row


def test_a_message_reaches_a_session_of_another_host(hosts: Hosts) -> None:
    hosts.h1.add("first")
    hosts.h2.up("coder-1", coder=READ)
    until((hosts.h2.notes / "began").exists, "the session works")
    answer = hosts.h1.tell("note", "--to", "coder-1", "--now", "prices are gross")
    assert "waits for the host h2" in answer["next"]
    until(lambda: "prices are gross" in (hosts.h2.notes / "heard").read_text(), "the session has read it")
    until(lambda: hosts.h1.tell("metrics")["messages"]["waiting"] == 0, "nothing waits any more")


def test_the_status_of_a_host_shows_sessions_of_others(hosts: Hosts) -> None:
    hosts.h1.add("first")
    hosts.h2.up("coder-1", coder=WAIT)
    until(lambda: agent_of(hosts.h1, "coder-1")["doing"] == "working", "the session is seen")
    row = agent_of(hosts.h1, "coder-1")
    assert (row["host"], row["run"], row["state"]) == ("h2", "coder-1.1", "working")
    assert "on the host h2" in row["why"]
    for words in (("logs", "coder-1"), ("logs", "coder-1.1"), ("attach", "coder-1")):
        told = hosts.h1.liza(*words, code=1)
        assert "the sessions of coder-1 are on the host h2" in told
        assert f"liza {' '.join(words)}" in told


def test_a_budget_that_one_host_used_up_stops_the_others(hosts: Hosts) -> None:
    hosts.h1.add("first", "second")
    hosts.h1.liza("config", "set", "budget.money_per_sprint", "10")
    hosts.h1.up("coder-1", coder=WAIT)
    hosts.h2.up("coder-2", coder=WAIT)
    for host in (hosts.h1, hosts.h2):
        until((host.notes / "began").exists, "a session on each host")
    sprint, now = find_crew(hosts.h1.root).board.read().sprint.id, datetime.now(UTC)
    entry = LedgerEntry(
        run="coder-2.9", time=now, kind="work", program="sh", outcome="submitted", seconds=3.0, sprint=sprint,
        used=TokenUsage(input=10, output=5, cost=12.0),
    )  # fmt: skip
    ledger.append_entry(hosts.h2.paths, entry)
    began = time.monotonic()
    until(lambda: (hosts.h1.paths.run("coder-1.1") / "exit.json").exists(), "the session of the other host has ended")
    assert time.monotonic() - began < 20
    assert "money_per_sprint" in str(hosts.h1.tell("status")["alerts"])
    assert hosts.h1.tell("status")["cost"]["money"] == 12.0

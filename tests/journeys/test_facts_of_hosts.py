"""What hosts of a crew share beside the board: messages, what sessions cost, and what agents do."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from liza.model.paths import HISTORY_REF
from liza.model.spending import LedgerEntry, TokenUsage
from liza.usage import ledger
from tests.conftest import commit_all, git, until
from tests.journeys.crews import APPROVE, WORK
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


def test_another_host_sees_a_session_and_reaches_it_by_a_message(hosts: Hosts) -> None:
    hosts.h1.add("first")
    hosts.h2.up("coder-1", coder=READ)
    until(lambda: agent_of(hosts.h1, "coder-1")["doing"] == "working", "the session is seen")
    row = agent_of(hosts.h1, "coder-1")
    assert (row["host"], row["run"], row["state"]) == ("h2", "coder-1.1", "working")
    assert "on the host h2" in row["why"]
    for words in (("logs", "coder-1"), ("logs", "coder-1.1"), ("attach", "coder-1")):
        told = hosts.h1.liza(*words, code=1)
        assert "the sessions of coder-1 are on the host h2" in told
        assert f"liza {' '.join(words)}" in told
    until((hosts.h2.notes / "began").exists, "the session works")
    answer = hosts.h1.tell("note", "--to", "coder-1", "--now", "prices are gross")
    assert "waits for the host h2" in answer["next"]
    until(lambda: "prices are gross" in (hosts.h2.notes / "heard").read_text(), "the session has read it")
    until(lambda: hosts.h1.tell("metrics")["messages"]["waiting"] == 0, "nothing waits any more")


@pytest.mark.campaign
def test_a_budget_that_one_host_used_up_stops_the_others(hosts: Hosts) -> None:
    hosts.h1.add("first", "second")
    hosts.h1.prepare("config", "set", "budget.money_per_sprint", "10")
    hosts.h1.up("coder-1", coder=WAIT)
    hosts.h2.up("coder-2", coder=WAIT)
    for host in (hosts.h1, hosts.h2):
        until((host.notes / "began").exists, "a session on each host")
    sprint, now = hosts.h1.opened.board.read().sprint.id, datetime.now(UTC)
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


def exported_revisions(hosts: Hosts) -> list[int]:
    """The revisions in the history of the remote, in its order."""
    if not git(hosts.remote, "for-each-ref", HISTORY_REF):
        return []
    form = "--format=%(trailers:key=Liza-Revision,valueonly,separator=)"
    return [int(line) for line in git(hosts.remote, "log", "--reverse", form, HISTORY_REF).split()]


def test_the_history_is_in_the_remote_as_commits(hosts: Hosts) -> None:
    hosts.h1.add("first")
    hosts.h2.up("coder-1", coder=WORK)
    until(lambda: hosts.h1.statuses()["first"] == "READY_FOR_REVIEW", "the task is submitted")
    newest = hosts.h1.opened.board.read().revision
    until(lambda: newest in exported_revisions(hosts), "the newest revision is exported")
    numbers = exported_revisions(hosts)
    assert numbers == list(range(1, numbers[-1] + 1))
    assert "status: READY_FOR_REVIEW" in git(hosts.remote, "show", f"{HISTORY_REF}:state.yaml")
    # Another host goes on from there.
    hosts.h2.liza("down")
    hosts.h1.up("code-reviewer-1", code_reviewer=APPROVE)
    until(lambda: len(exported_revisions(hosts)) > len(numbers) + 1, "another host exports")
    again = exported_revisions(hosts)
    assert again == list(range(1, again[-1] + 1))


def test_one_host_sends_the_notices_of_a_crew(hosts: Hosts) -> None:
    sent = hosts.remote.parent / "sent"
    hosts.h1.prepare("config", "set", "notify.exec", f'echo "$LIZA_ALARM_KIND $(pwd)" >> {sent}')
    hosts.h1.add("first")
    for number, host in enumerate((hosts.h1, hosts.h2), 1):
        host.up(f"coder-{number}", coder='liza block unclear --ask "which port?"\n')
    until(lambda: "notices" in hosts.h1.liza("host", "list"), "a host has the duty")
    until(sent.exists, "a notice is sent")
    duties = [host["name"] for host in hosts.h1.tell("host", "list")["hosts"] if "notices 1" in host["duties"]]
    assert len(duties) == 1
    senders = {line.split()[1] for line in sent.read_text().splitlines()}
    assert senders == {str(getattr(hosts, duties[0]).root)}


def test_a_history_of_another_crew_is_not_replaced(hosts: Hosts) -> None:
    project = hosts.remote.parent / "project"
    commit_all(project, "Another board\n\nLiza-Revision: 99999", {"state.yaml": "version: 1\n"})
    git(project, "push", "-q", "origin", f"HEAD:{HISTORY_REF}")
    other = git(project, "rev-parse", "HEAD")
    hosts.h1.up("coder-1", coder=WAIT)
    until(lambda: "history_conflict" in str(hosts.h1.tell("status")["alerts"]), "the conflict is reported")
    assert git(hosts.remote, "rev-parse", HISTORY_REF) == other


@pytest.mark.campaign
def test_after_a_restore_the_newer_history_gets_another_name(hosts: Hosts) -> None:
    hosts.h1.add("first")
    hosts.h1.up("coder-1", coder=WAIT)
    until(lambda: hosts.h1.statuses()["first"] == "CLAIMED" and exported_revisions(hosts) != [], "it is exported")
    hosts.h1.liza("down", "--now")
    until(lambda: git(hosts.remote, "rev-parse", HISTORY_REF) == git(hosts.h1.root, "rev-parse", HISTORY_REF), "all is")
    text = "A change after the backup\n\nLiza-Revision: 99999"
    newer = git(hosts.h1.root, "commit-tree", f"{HISTORY_REF}^{{tree}}", "-p", HISTORY_REF, "-m", text)
    git(hosts.h1.root, "update-ref", HISTORY_REF, newer)
    git(hosts.h1.root, "push", "-q", "origin", HISTORY_REF)
    hosts.h1.up("coder-1", coder=WAIT)
    steps = set[str]()

    def is_exported() -> bool:
        for alert in hosts.h1.tell("status")["alerts"]:
            if alert["kind"] == "history_conflict" and alert["next"] not in steps:
                steps.add(alert["next"])
                subprocess.run(["sh", "-c", alert["next"]], cwd=hosts.h1.root, check=True, timeout=60)
        newest = hosts.h1.opened.board.read().revision
        return len(steps) == 2 and newest in exported_revisions(hosts)

    until(is_exported, "after a command for this clone and one for the remote the history goes on")
    assert git(hosts.remote, "rev-parse", f"{HISTORY_REF}-{newer[:12]}") == newer

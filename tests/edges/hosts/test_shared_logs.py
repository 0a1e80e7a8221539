"""Usage and runs of gates of several hosts: each clone has those of all."""

from __future__ import annotations

from datetime import UTC, datetime

from liza.board.postgresql.connection import connect
from liza.board.shared_records import SharedLog
from liza.crew import shared_logs
from liza.crew.crew import Crew, open_crew
from liza.merging import gate_log
from liza.model.gates import GateOutcome, GateRun
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.usage import ledger
from tests.conftest import until
from tests.edges.hosts.conftest import MakeHost
from tests.edges.hosts_rig import HostRig

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def session(run: str, cost: float = 1.0) -> LedgerEntry:
    """One session in the ledger."""
    used = TokenUsage(input=10, output=5, cost=cost)
    return LedgerEntry(
        run=run, time=NOW, kind="work", program="sh", outcome="submitted", seconds=3.0, sprint="s", used=used
    )


def gate_run(candidate: str, second: int = 0) -> GateRun:
    """One run of a gate."""
    time = NOW.replace(second=second)
    return GateRun(
        time=time, gate="tests", candidate=candidate, subject="t1", tasks=1, seconds=2.0, outcome=GateOutcome.GREEN
    )


def runs_of(paths: Paths) -> set[str]:
    """The runs in the ledger of a clone."""
    return {entry.run for entry in ledger.read_entries(paths)}


def crew_of(host: HostRig) -> Crew:
    """The crew as commands in the clone of a host have it."""
    return open_crew(host.paths.root)


def test_each_host_has_the_usage_of_all_hosts(make_host: MakeHost) -> None:
    hosts = [make_host("h1"), make_host("h2")]
    for host in hosts:
        host.start_and_wait()
    for number, host in enumerate(hosts):
        ledger.append_entry(host.paths, session(f"coder-{number}.1"))
    for host in hosts:
        until(lambda host=host: runs_of(host.paths) == {"coder-0.1", "coder-1.1"}, "the usage of both hosts")


def test_a_session_that_is_recorded_again_counts_once(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    for each in (host, other):
        each.start_and_wait()
    ledger.append_entry(host.paths, session("coder-1.1", 1.0))
    ledger.append_entry(host.paths, session("coder-1.1", 2.0))
    until(lambda: [entry.used for entry in ledger.read_entries(other.paths)] == [session("", 2.0).used], "its usage")


def test_usage_of_before_a_crash_reaches_other_hosts(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    ledger.append_entry(host.paths, session("coder-1.1"))
    host.start_and_wait()
    until(lambda: shared_logs.read_shared(host.paths, SharedLog.USAGE, LedgerEntry) != [], "it is on the server")
    shared_logs.refresh(crew_of(other), SharedLog.USAGE)
    assert runs_of(other.paths) == {"coder-1.1"}


def test_the_last_usage_is_sent_before_a_host_leaves(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    host.start_and_wait()
    ledger.append_entry(host.paths, session("coder-1.1"))
    assert host.stop() == 0
    shared_logs.refresh(crew_of(other), SharedLog.USAGE)
    assert runs_of(other.paths) == {"coder-1.1"}


def test_the_next_merger_knows_runs_of_gates_of_the_last(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    host.start_and_wait()
    gate_log.append_runs(host.paths, [gate_run("b" * 40, 1), gate_run("a" * 40)])
    until(lambda: len(shared_logs.read_shared(host.paths, SharedLog.GATES, GateRun)) == 2, "they are on the server")
    past = gate_log.read_or_report(crew_of(other))
    assert [run.candidate[0] for run in past] == ["a", "b"]
    assert gate_log.read_runs(host.paths) == past


def test_lines_of_a_restored_database_are_copied_anew(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    host.start_and_wait()
    for run in ("coder-1.1", "coder-1.2"):
        ledger.append_entry(host.paths, session(run))
    until(lambda: len(shared_logs.read_shared(host.paths, SharedLog.USAGE, LedgerEntry)) == 2, "both are there")
    shared_logs.refresh(crew_of(other), SharedLog.USAGE)
    connection = connect(host.address)
    connection.execute("DELETE FROM log_line WHERE line LIKE %s", "%coder-1.2%")
    connection.close()
    shared_logs.refresh(crew_of(other), SharedLog.USAGE)
    assert runs_of(other.paths) == {"coder-1.1"}


def test_a_damaged_line_of_a_host_stays_there(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    host.start_and_wait()
    host.paths.usage.write_text("{}\n")
    ledger.append_entry(host.paths, session("coder-1.1"))
    until(lambda: len(shared_logs.read_shared(host.paths, SharedLog.USAGE, LedgerEntry)) == 1, "the good line")
    shared_logs.refresh(crew_of(other), SharedLog.USAGE)
    assert runs_of(other.paths) == {"coder-1.1"}

"""What is recorded of a crew, and what comes back of one from there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from liza.alarms import current_alarms
from liza.board.file_store import revision_journal
from liza.crew import recorder
from liza.crew.crew import Crew, find_crew
from liza.git import board_history
from liza.git.board_history import NewRevision
from liza.git.runner import Git
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.errors import GitFailed, NoCrew, Refused, WriteFailed
from liza.model.model import Agent
from liza.model.paths import HISTORY_REF, Paths
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery import findings
from liza.recovery.restore import find_crew_or_lost, restore
from liza.supervisor.down import purge
from liza.system import untrusted_files
from liza.system.locks import Lock
from liza.tasks import archive
from liza.tasks.evidence import gather_evidence
from liza.view.history import history as shown
from tests.campaign import forks
from tests.campaign.small_board import waiting_of
from tests.conftest import FakeClock, git, variant


def begun(repo: Path, goal: str, clock: FakeClock) -> Crew:
    init(repo, InitOptions(goal=goal, no_test=True, program="script:/bin/true"))
    return Crew(Paths(repo), clock)


def signed(crew: Crew, agent: str) -> None:
    """A revision, recorded."""
    with crew.change("human:ann", f"hire {agent}") as tx:
        tx.state = tx.state.with_agent(agent, Agent(role="coder", status="OFFLINE"))
    recorder.record_history(crew)


def recorded(repo: Path) -> list[tuple[int, str]]:
    return [(one.revision, one.subject) for one in board_history.list_revisions(Git(repo), None, 99)]


def test_a_writer_records_many_waiting_revisions_beside_a_supervisor(
    repo: Path, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    crew = begun(repo, "x", clock)
    with crew.change("human:ann", "note") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status="OFFLINE"))
    supervisor = Lock(crew.paths.supervisor_lock("coder-1"))
    with supervisor.acquire():
        recorder.record_if_unsupervised(crew)
        assert waiting_of(crew.paths) == [2]
        monkeypatch.setattr(recorder, "MAX_WAITING", 0)
        recorder.record_if_unsupervised(crew)
    assert waiting_of(crew.paths) == []
    assert crew.git.out("rev-list", "--count", "liza/blackboard") == "2"


def test_history_is_read_although_nothing_can_be_recorded(repo: Path, clock: FakeClock) -> None:
    crew = begun(repo, "x", clock)
    with crew.change("human:ann", "hire") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status="OFFLINE"))
    (repo / ".git" / "refs" / "liza" / "blackboard.lock").mkdir()
    with pytest.raises(GitFailed):
        recorder.record_history(crew)
    assert [one.revision for one in shown(crew, None, 10)] == [2, 1]


def test_a_new_crew_continues_the_history_of_the_last_one(repo: Path, clock: FakeClock) -> None:
    first = begun(repo, "The first goal", clock)
    for agent in ("coder-1", "coder-2"):
        signed(first, agent)
    kept = git(repo, "rev-parse", HISTORY_REF)
    purge(first)
    git(repo, "update-ref", HISTORY_REF, kept)

    said: list[str] = []
    answer = init(repo, InitOptions(goal="The second goal", no_test=True), lambda name, text: said.append(text))
    second = Crew(Paths(repo), clock)
    assert answer.details["revision"] == second.board.read().revision == 4
    assert any("an earlier crew, up to 3" in line for line in said)
    assert recorded(repo)[0] == (4, "init (human)")
    signed(second, "coder-9")
    assert recorded(repo) == [
        (5, "hire coder-9 (human:ann)"),
        (4, "init (human)"),
        (3, "hire coder-2 (human:ann)"),
        (2, "hire coder-1 (human:ann)"),
        (1, "init (human)"),
    ]
    assert [one.revision for one in revision_journal.iter_newest_first(second.paths.journal)] == [5, 4]

    shutil.rmtree(second.paths.tx)
    second.paths.state.write_text("")
    assert restore(Crew(Paths(repo), clock), last_good=True).details["restored"] == 5
    now = Crew(Paths(repo), clock).board.read()
    assert (now.goal.description, [*now.agents], now.revision) == ("The second goal", ["coder-9"], 6)


def find_conflicts(crew: Crew) -> list[Alarm]:
    state = crew.board.read()
    present = current_alarms.find_alarms(crew, state, gather_evidence(crew, state))
    return [alarm for alarm in present if alarm.kind == AlarmKind.HISTORY_CONFLICT]


@pytest.mark.campaign
def test_revisions_of_another_crew_are_alarm_and_nothing_is_lost(repo: Path, clock: FakeClock) -> None:
    crew = begun(repo, "x", clock)
    signed(crew, "coder-1")
    older = repo.parent / "older"
    shutil.copytree(crew.paths.liza, older)
    for agent in ("coder-2", "coder-3"):
        signed(crew, agent)
    shutil.rmtree(crew.paths.liza)
    older.rename(crew.paths.liza)
    crew, others = Crew(Paths(repo), clock), git(repo, "rev-parse", HISTORY_REF)
    for agent in ("coder-7", "coder-8"):
        signed(crew, agent)
    assert git(repo, "rev-parse", HISTORY_REF) == others
    assert waiting_of(crew.paths) == [3, 4]
    state = crew.board.read()
    [alarm] = find_conflicts(crew)
    assert "another revision 3" in alarm.message
    [finding] = [finding for finding in findings.list_findings(crew, state) if finding.about == "history"]
    assert (finding.ok, finding.text, finding.hint) == (False, alarm.message, alarm.next)
    for refused in (lambda: shown(crew, None, 10), lambda: purge(crew)):
        with pytest.raises(Refused, match="another revision 3"):
            refused()
    subprocess.run(["sh", "-c", alarm.next], cwd=repo, check=True)
    assert find_conflicts(crew) == []
    assert [row.subject for row in shown(crew, None, 10)] == [
        *("hire coder-8 (human:ann)", "hire coder-7 (human:ann)", "hire coder-1 (human:ann)", "init (human)")
    ]
    assert git(repo, "rev-parse", f"{HISTORY_REF}-4") == others
    assert [finding for finding in findings.list_findings(crew, state) if finding.about == "history"] == []


def test_a_modified_history_stops_init_before_any_change(repo: Path, clock: FakeClock) -> None:
    git(repo, "update-ref", HISTORY_REF, "main")
    refs = git(repo, "for-each-ref")
    with pytest.raises(GitFailed, match="no Liza-Revision"):
        begun(repo, "x", clock)
    assert not (repo / ".liza").exists()
    assert git(repo, "for-each-ref") == refs


def test_without_a_board_every_command_names_the_kept_history(repo: Path, clock: FakeClock) -> None:
    with pytest.raises(NoCrew, match=r"there is no \.liza") as nothing:
        find_crew(repo)
    assert "liza init" in nothing.value.hint
    crew = begun(repo, "x", clock)
    crew.paths.state.unlink()
    with pytest.raises(Refused, match=r"has no board.*\.liza/tx") as refused:
        init(repo, InitOptions(goal="y", no_test=True))
    assert refused.value.hint == "liza restore --last-good"
    shutil.rmtree(crew.paths.tx)
    with pytest.raises(NoCrew, match=f"has no board.*{HISTORY_REF}.*To begin anew: mv ") as gone:
        find_crew(repo / ".git")
    with pytest.raises(Refused) as again:
        init(repo, InitOptions(goal="y", no_test=True))
    assert (again.value.message, again.value.hint) == (gone.value.message, gone.value.hint)
    assert gone.value.hint == "liza restore --last-good"
    git(repo, "update-ref", "-d", HISTORY_REF)
    with pytest.raises(Refused, match=r"has no board$") as bare:
        init(repo, InitOptions(goal="y", no_test=True))
    assert bare.value.hint == f"mv {repo}/.liza {repo}/.liza-old"


@pytest.mark.sample(1)
@pytest.mark.parametrize("left", ["the rest of .liza", "nothing"])
def test_a_crew_is_restored_from_its_history_alone_and_continues(
    repo: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    crew = begun(repo, "Everything is there", clock)
    signed(crew, "coder-1")
    monkeypatch.chdir(repo)
    for place in (crew.paths.state, crew.paths.liza) if left == "nothing" else (crew.paths.state, crew.paths.tx):
        place.unlink() if place.is_file() else shutil.rmtree(place)
    with pytest.raises(NoCrew, match=HISTORY_REF):
        find_crew()
    answer = restore(find_crew_or_lost(), last_good=True)
    assert "revision 2 is restored as revision 3: Everything is there" in answer.message
    assert ("was recreated" in answer.message) == (left == "nothing")
    again = find_crew()
    assert (again.paths.specs / "goal.md").read_text().startswith("# Everything is there")
    assert again.paths.contracts.is_dir()
    signed(again, "coder-2")
    assert [*again.board.read().agents] == ["coder-1", "coder-2"]
    assert [number for number, _ in recorded(repo)] == [4, 3, 2, 1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("moved", [False, True])
def test_no_crew_is_created_beside_supervisor_of_a_deleted_liza(
    repo: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    crew = begun(repo, "x", clock)
    monkeypatch.chdir(repo)
    lock = Lock(crew.paths.supervisor_lock("coder-1"))
    with lock.acquire():
        supervisor = subprocess.Popen(["sleep", "60"], pass_fds=(lock.descriptor,))
    try:
        crew.paths.liza.rename(repo / ".liza.old") if moved else shutil.rmtree(crew.paths.liza)
        restoring = (lambda: restore(find_crew_or_lost(), last_good=True), "liza restore --last-good --stop")
        for word, step in (restoring, (lambda: init(repo, InitOptions(goal="y")), f"kill {supervisor.pid}")):
            with pytest.raises(Refused, match=r"locks/supervisor-coder-1\.lock") as refused:
                word()
            assert refused.value.hint == step
            assert not crew.paths.liza.exists()
    finally:
        supervisor.kill()
        supervisor.wait()
    assert restore(find_crew_or_lost(), last_good=True).result == "changed"


def _revise(crew: Crew, number: int) -> None:
    with crew.change("human:ann", f"note {number}") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status="OFFLINE", runs=number))


def _packs(repo: Path) -> set[str]:
    return {path.stem for path in (repo / ".git/objects/pack").glob("*.pack")}


def test_many_revisions_are_recorded_in_several_batches(
    repo: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = begun(repo, "goal", clock)
    recorder.record_history(crew)
    before = len(recorded(repo))
    monkeypatch.setattr(recorder, "BATCH_COUNT", 4)
    sizes: list[int] = []
    record = board_history.record_revisions

    def record_and_count(git: Git, new: Iterable[NewRevision], *, packed: bool) -> int:
        sizes.append(record(git, new, packed=packed))
        return sizes[-1]

    monkeypatch.setattr(board_history, "record_revisions", record_and_count)
    for number in range(10):
        _revise(crew, number)
    assert recorder.record_history(crew) == 10
    assert sizes == [4, 4, 2]
    assert len(recorded(repo)) == before + 10
    assert waiting_of(crew.paths) == []


@pytest.mark.campaign
def test_git_joins_the_packs_of_the_history_and_prunes_nothing(repo: Path, clock: FakeClock) -> None:
    crew = begun(repo, "x", clock)
    (repo / "mine.txt").write_text("mine\n")
    loose = git(repo, "hash-object", "-w", "mine.txt")
    for number in range(1, 36):
        _revise(crew, number)
        recorder.record_history(crew, packed=True)
    assert len(_packs(repo)) <= board_history.MAX_PACKS + 1
    assert git(repo, "cat-file", "blob", loose) == "mine"
    assert [number for number, _ in recorded(repo)] == list(range(36, 0, -1))
    assert git(repo, "fsck", "--full", "--strict", "--no-dangling") == ""


def test_a_new_crew_does_not_restore_the_archive_of_another(repo: Path, clock: FakeClock) -> None:
    crew = begun(repo, "x", clock)
    crew.paths.archive.mkdir()
    (crew.paths.archive / "2026-01.yaml").write_text("tasks:\n")
    _revise(crew, 1)
    recorder.record_history(crew)
    assert list(board_history.list_archive(crew.git)) == ["2026-01.yaml"]
    shutil.rmtree(crew.paths.liza)
    second = begun(repo, "y", clock)
    assert board_history.list_archive(second.git) == {}
    assert archive.restore_entries(second, "human:ann").names == ()


def test_a_batch_is_recorded_in_quiet_times_or_when_large(
    repo: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = begun(repo, "x", clock)
    assert recorder.seconds_to_batch(crew) is None
    _revise(crew, 1)
    assert recorder.seconds_to_batch(crew) == recorder.QUIET_INTERVAL
    clock.advance(recorder.QUIET_INTERVAL)
    assert recorder.seconds_to_batch(crew) == 0
    clock.advance(recorder.BATCH_INTERVAL - 1.5)
    _revise(crew, 2)
    assert recorder.seconds_to_batch(crew) == 0.5
    clock.advance(-60)
    assert recorder.seconds_to_batch(crew) == 0
    clock.advance(60)
    monkeypatch.setattr(recorder, "BATCH_COUNT", 1)
    assert recorder.seconds_to_batch(crew) == 0


def test_of_the_supervisors_that_exit_the_last_one_records(repo: Path, clock: FakeClock) -> None:
    crew = begun(repo, "x", clock)
    with crew.change("human:ann", "hire") as tx:
        for name in ("coder-1", "coder-2"):
            tx.state = tx.state.with_agent(name, Agent(role="coder", status="IDLE"))
    with Lock(crew.paths.supervisor_lock("coder-1")), Lock(crew.paths.supervisor_lock("coder-2")):
        recorder.record_at_exit(crew, "coder-1")
        assert waiting_of(crew.paths) == [2]
        with crew.change("coder-1", "leave") as tx:
            tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status="OFFLINE"))
        recorder.record_at_exit(crew, "coder-2")
    assert waiting_of(crew.paths) == []


def _change_line(crew: Crew, revision: int, **fields: object) -> None:
    """Damage the line of a revision in the journal."""
    rows = [json.loads(line.removeprefix("- ")) for line in crew.paths.journal.read_text().splitlines()]
    rows = [row | fields if row.get("revision") == revision else row for row in rows]
    crew.paths.journal.write_text("".join(f"- {json.dumps(row)}\n" for row in rows))


@pytest.mark.parametrize(
    "fields",
    [{"sha256": "0" * 64}, variant({"time": "yesterday"}), variant({"time": "1900-01-01T00:00:00+00:00"})],
    ids=["other text", "no time", "time before git"],
)
def test_a_damaged_revision_is_reported_and_the_others_are_recorded(
    repo: Path, clock: FakeClock, fields: dict[str, str]
) -> None:
    crew = begun(repo, "x", clock)
    for number in (2, 3, 4):
        _revise(crew, number)
    _change_line(crew, 3, **fields)
    recorder.record_history(crew)
    assert [number for number, _ in recorded(repo)] == [4, 2, 1]
    assert waiting_of(crew.paths) == []
    assert "revision 3 cannot be read in log.yaml" in crew.paths.alerts.read_text()
    _revise(crew, 5)
    recorder.record_history(crew)
    assert [number for number, _ in recorded(repo)] == [5, 4, 2, 1]
    assert _history_findings(crew) == []


def _history_findings(crew: Crew) -> list[findings.Finding]:
    return [item for item in findings.list_findings(crew, crew.board.read()) if item.about == "history"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mark", [None, "", "\0" * 20, "3"])
def test_without_a_mark_only_what_the_history_lacks_is_recorded(repo: Path, clock: FakeClock, mark: str | None) -> None:
    crew = begun(repo, "x", clock)
    for agent in ("coder-1", "coder-2"):
        signed(crew, agent)
    for number, agent in ((4, "coder-1"), (5, "coder-2"), (6, "coder-1")):
        with crew.change("human:ann", f"note {number}") as tx:
            tx.state = tx.state.with_agent(agent, Agent(role="coder", status="OFFLINE", runs=number))
    # After a power cut a file that was not synced may be older, or has blocks of zeros.
    crew.paths.recorded_mark.unlink()
    if mark is not None:
        crew.paths.recorded_mark.write_text(mark)
    assert recorder.record_history(crew) == 3
    assert [number for number, _ in recorded(repo)] == [6, 5, 4, 3, 2, 1]
    assert waiting_of(crew.paths) == []


def test_a_process_that_can_open_no_more_files_records_nothing(
    repo: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = begun(repo, "x", clock)
    _revise(crew, 2)
    _revise(crew, 3)

    def fail(path: Path, *_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(untrusted_files, "open_regular", fail)
        with pytest.raises(WriteFailed):
            recorder.record_history(crew)
    assert waiting_of(crew.paths) == [2, 3]
    recorder.record_history(crew)
    assert [number for number, _ in recorded(repo)] == [3, 2, 1]


def test_a_recorder_killed_at_any_point_loses_no_revision(repo: Path, clock: FakeClock) -> None:
    crew = begun(repo, "x", clock)
    for number in (2, 3, 4):
        _revise(crew, number)
    for number, point in enumerate(("written.recorded", "renamed.recorded"), start=5):
        assert forks.run(lambda: recorder.record_history(crew), point) == -signal.SIGKILL, point
        _revise(crew, number)
    recorder.record_history(crew)
    assert [number for number, _ in recorded(repo)] == [6, 5, 4, 3, 2, 1]
    assert waiting_of(crew.paths) == []

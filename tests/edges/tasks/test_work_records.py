"""An agent's work record: kept when its tasks are archived and it has left the board, and brought to another crew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.model.errors import LizaError, Refused, UnknownId, UsageError
from liza.printing import render_task
from liza.printing.render_task import format_task
from liza.system.locks import Lock
from liza.tasks.archive import archive_closed
from liza.tasks.claim import claim_task
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.view import agents
from liza.view.task_rows import show_task
from tests.conftest import commit_all, git
from tests.edges.merge_crew import Merges, prepared


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Merges:
    """Another crew, with a history of its own."""
    with prepared(tmp_path_factory, goal="Another goal") as root:
        (root.parent / "notes").mkdir()
        return Merges(root, root.parent / "notes")


@pytest.mark.campaign
def test_a_work_record_survives_archiving_and_removal_of_its_agent(crew: Merges) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    before = agents.show_agent(crew.crew, "coder-1")["record"]
    assert (before["counts"], before["areas"], before["languages"]) == ({"merged": 1}, {".": 1}, {".txt": 1})
    assert before["tasks"][0]["paths"] == ("a.txt",)
    assert before["rates"]["approved_at_once"] == 1.0
    archive_closed(crew.crew, "human:test")
    assert crew.crew.board.read().tasks == ()
    with crew.crew.change("human:test", "edit") as tx:
        tx.state = replace(tx.state, agents={})
    shown = agents.show_agent(crew.crew, "coder-1")
    assert (shown["status"], shown["record"]) == (None, before)
    with pytest.raises(UnknownId, match="there is no agent coder-9"):
        agents.show_agent(crew.crew, "coder-9")


@pytest.mark.campaign
def test_a_record_is_brought_to_another_crew_once(crew: Merges, other: Merges) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    first = agents.export_agent(crew.crew, "coder-1")
    result = agents.import_agent(other.crew, first)
    assert result.result == "changed"
    assert agents.import_agent(other.crew, first).result == "unchanged"
    (imported,) = agents.show_agent(other.crew, "coder-1")["record"]["imported"]
    assert (imported["repository"], imported["counts"]) == ("repo", {"merged": 1})
    crew.approved("c")
    assert crew.merge() == ""
    newer = agents.export_agent(crew.crew, "coder-1")
    assert agents.import_agent(other.crew, newer).result == "changed"
    assert agents.import_agent(other.crew, first).result == "unchanged"
    (imported,) = agents.show_agent(other.crew, "coder-1")["record"]["imported"]
    assert imported["counts"] == {"merged": 2}


@pytest.mark.campaign
def test_a_record_that_was_changed_is_refused(crew: Merges, other: Merges) -> None:
    crew.approved("a")
    assert crew.merge() == ""
    data = agents.export_agent(crew.crew, "coder-1")
    forged = json.loads(data)
    forged["tasks"][0] |= {"rejections": 0, "reviews": 5}
    with pytest.raises(Refused, match="made this record in this crew"):
        agents.import_agent(crew.crew, data)
    agents.import_agent(other.crew, data)
    with pytest.raises(Refused, match="has another record of coder-1"):
        agents.import_agent(other.crew, json.dumps(forged).encode())
    with pytest.raises(Refused, match="no work record"):
        agents.export_agent(crew.crew, "coder-9")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"agent": "../../x"},
        {"crew": "x"},
        {"unknown": 1},
        {"tasks": [{"task": "a", "outcome": "great"}]},
        {"tasks": [{"task": "a", "outcome": "merged"}] * 2},
    ],
)
@pytest.mark.campaign
def test_anything_but_a_record_is_refused_and_not_kept(crew: Merges, other: Merges, change: dict[str, object]) -> None:
    crew.approved("a")
    record = json.loads(agents.export_agent(crew.crew, "coder-1")) | change
    with pytest.raises(UsageError):
        agents.import_agent(other.crew, json.dumps(record).encode())
    assert not other.crew.paths.records.exists()


@pytest.mark.campaign
def test_a_damaged_archive_entry_is_named_and_not_exported(crew: Merges) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    archive_closed(crew.crew, "human:test")
    (path,) = crew.crew.paths.archive.glob("*.yaml")
    path.write_text(path.read_text().replace("status: MERGED", "status: {", 1))
    record = agents.show_agent(crew.crew, "coder-2")["record"]
    assert record["unreadable"] == ["a"]
    assert "1 archived task cannot be read" in render_task.format_record(record, colour=False)
    with pytest.raises(Refused, match="a cannot be read in the archive") as refused:
        agents.export_agent(crew.crew, "coder-2")
    assert refused.value.hint == "liza validate"


def test_an_imported_record_that_was_damaged_is_named(crew: Merges, other: Merges) -> None:
    crew.approved("a")
    agents.import_agent(other.crew, agents.export_agent(crew.crew, "coder-1"))
    (path,) = other.crew.paths.records.glob("*/*.json")
    path.write_text("{")
    with pytest.raises(LizaError, match="cannot be read") as refused:
        agents.show_agent(other.crew, "coder-1")
    assert refused.value.hint == f"rm {path}"


@pytest.mark.campaign
def test_a_task_is_kept_for_the_coder_knowing_its_scope(
    crew: Merges,
) -> None:
    crew.approved("a", "b", work=_write_source)
    assert crew.merge() == ""
    crew.configure(routing="record")
    add(crew.crew, [TaskFields("c", "Write", "it is there", "source/b/", "README.md")])
    assert show_task(crew.crew, "c")["routing"] is None  # no supervisor runs
    locks = [Lock(crew.crew.paths.supervisor_lock(name)) for name in ("coder-1", "coder-2")]
    with locks[0].acquire(timeout=5), locks[1].acquire(timeout=5):
        shown = show_task(crew.crew, "c")
        assert (shown["routing"]["agent"], shown["routing"]["fits"]) == ("coder-2", {"coder-1": 0.0, "coder-2": 1.0})
        assert "kept for" in format_task(shown, False)
        assert archive_closed(crew.crew, "human:test") == ("a", "b")
        assert [task.id for task in crew.crew.board.read().tasks] == ["c"]
        archived = show_task(crew.crew, "c")["routing"]
        assert archived is not None
        assert archived["fits"] == {"coder-1": 0.0, "coder-2": 1.0}
        with pytest.raises(Refused, match="the record of coder-2 fits best: 1"):
            claim_task(crew.crew, "coder-1")
        assert claim_task(crew.crew, "coder-2").task == "c"


def _write_source(there: Path) -> None:
    name = git(there, "branch", "--show-current").removeprefix("task/")
    (there / "source" / name).mkdir(parents=True)
    (there / "source" / name / "code.py").write_text("x = 1\n")
    commit_all(there, "source")

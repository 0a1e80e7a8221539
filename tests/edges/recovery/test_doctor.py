"""What the doctor sees of a crew, and names with the next step; what it mends, others test where the mending is."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.board import recorded_mark
from liza.briefs import inbox
from liza.config import confirmed_settings
from liza.crew.crew import Crew
from liza.git.checkout_moves import BranchMove
from liza.model.errors import Finding, LizaError, Missing
from liza.model.model import Agent
from liza.model.value_classes import asdict
from liza.programs.session.run_directory import RunRecord
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery.doctor import doctor
from liza.system.locks import Lock
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from tests.campaign.small_board import waiting_of
from tests.conftest import FakeClock, git
from tests.edges.merging.test_integration import crew, made  # noqa: F401  # one preparation serves both files

HERE = f"script:{sys.executable}"


@pytest.fixture
def there(crew: Crew) -> Crew:  # noqa: F811
    """The crew, once its programs are those of this machine and everything is well."""
    started(crew, "coder-1", HERE)
    assert doctor(crew.paths.root).ok, doctor(crew.paths.root)
    return crew


def started(crew: Crew, agent: str, program: str) -> None:  # noqa: F811
    """As if a supervisor of the agent had been started once."""
    with crew.change(agent, "start") as tx:
        known = tx.state.agents.get(agent) or Agent(role=agent.rpartition("-")[0], status="OFFLINE")
        tx.state = tx.state.with_agent(agent, replace(known, program=program))


def told(crew: Crew, about: str) -> list[Finding]:  # noqa: F811
    return [one for one in doctor(crew.paths.root).findings if one.about == about]


def claimed(crew: Crew) -> None:  # noqa: F811
    add(crew, [TaskFields("c", "Write", "it is there", "c.txt", "README.md")])
    claim(crew, "coder-1", "c")


@pytest.mark.campaign
def test_file_that_is_no_message_is_named_with_its_path(there: Crew) -> None:
    inbox.queue_message(there.paths, "coder-1", "read this", "human", there.clock.now())
    assert not told(there, "coder-1")
    wrong = there.paths.runs / "coder-1" / "inbox" / "z.json"
    wrong.write_text("{")
    (found,) = told(there, "coder-1")
    assert found.ok
    assert str(wrong) in found.text
    assert found.hint == f"cat {wrong}"


@pytest.mark.campaign
def test_a_moved_or_deleted_integration_is_named_as_an_obstacle(there: Crew) -> None:
    before = git(there.paths.root, "rev-parse", "integration")
    git(there.paths.root, "branch", "-f", "integration", "main")
    (found,) = told(there, "branch")
    assert "2 merged tasks are not in it any more: a, b" in found.text
    assert (found.ok, found.hint.startswith(f"git branch -f integration {before[:12]}, or")) == (False, True)
    git(there.paths.root, "branch", "-D", "integration")
    for fix in (False, True):
        report = doctor(there.paths.root, fix=fix)
        (found,) = [one for one in report.findings if one.about == "branch"]
        wanted = Finding("branch", "the branch integration is gone", False, f"git branch integration {before[:12]}")
        assert found == wanted


@pytest.mark.campaign
def test_deleted_worktree_of_a_claimed_task_is_named_and_recreated(there: Crew) -> None:
    claimed(there)
    assert told(there, "claim") == []
    shutil.rmtree(there.paths.task_links)
    (found,) = told(there, "claim")
    worktree = there.paths.slot("s1")
    link = f"{there.paths.task_link('c')}, the link to its worktree {worktree}, is gone"
    assert (found.text, found.hint) == (f"c is claimed as coder-1.3, and {link}", "liza doctor --fix")
    shutil.rmtree(worktree)
    (found,) = told(there, "claim")
    assert found.text == f"c is claimed as coder-1.3, and its worktree {worktree} is gone"
    report = doctor(there.paths.root, fix=True)
    assert any("c: its worktree" in line for line in report.repaired)
    assert told(there, "claim") == []
    assert there.paths.task_link("c").resolve().is_dir()


def test_an_interrupted_move_of_integration_is_named_and_repaired(there: Crew) -> None:
    tip = git(there.paths.root, "rev-parse", "integration")
    git(there.paths.root, "switch", "-q", "integration")
    own = there.paths.root / ".git"
    (own / "liza-move").write_text(json.dumps(asdict(BranchMove("integration", tip, tip))))
    os.link(own / "liza-move", own / "index.lock")
    assert [one.hint for one in told(there, "merge")] == ["liza doctor --fix"]
    with Lock(there.paths.merge_lock):
        assert told(there, "merge") == []
    doctor(there.paths.root, fix=True)
    assert told(there, "merge") == []
    assert not (own / "index.lock").exists()


@pytest.mark.campaign
def test_a_lost_end_of_the_history_is_named(there: Crew) -> None:
    root = there.paths.root
    doctor(root, fix=True)
    revision = there.board.read().revision
    assert told(there, "history") == []
    tip = git(root, "rev-parse", "refs/liza/blackboard")
    git(root, "update-ref", "refs/liza/blackboard", "refs/liza/blackboard~2")
    (found,) = told(there, "history")
    assert f"refs/liza/blackboard ends at {revision - 2}: revisions {revision - 1} to {revision} are" in found.text
    assert found.hint == f"git update-ref refs/liza/blackboard {tip}"
    git(root, "update-ref", "-d", "refs/liza/blackboard")
    (found,) = told(there, "history")
    assert f"refs/liza/blackboard is gone: revisions up to {revision} are" in found.text
    git(root, *shlex.split(found.hint)[1:])
    assert told(there, "history") == []
    git(root, "update-ref", "-d", "refs/liza/blackboard")
    git(root, "repack", "-adq")
    git(root, "prune", "--expire=now")
    (found,) = told(there, "history")
    assert found.hint == "", "git has the commit no more"
    started(there, "coder-1", f"{HERE} -u")
    assert f"up to {revision} are" in told(there, "history")[0].text


def test_what_waits_to_be_recorded_is_no_lost_history(there: Crew) -> None:
    doctor(there.paths.root, fix=True)
    started(there, "coder-1", f"{HERE} -u")
    started(there, "coder-1", HERE)
    assert len(waiting_of(there.paths)) == 2
    assert told(there, "history") == []
    recorded_mark.write_mark(there.paths, there.board.read().revision)
    assert len(told(there, "history")) == 1


def test_a_missing_or_shorter_journal_is_named(there: Crew) -> None:
    whole = there.paths.journal.read_bytes()
    there.paths.journal.write_bytes(whole[: whole.rindex(b"\n- ") + 1])
    revision = there.board.read().revision
    assert f"ends at revision {revision - 1}, before the board's {revision}" in told(there, "journal")[0].text
    there.paths.journal.unlink()
    assert "is gone" in told(there, "journal")[0].text
    there.paths.journal.mkdir()
    (found,) = told(there, "journal")
    assert not found.ok


def test_doctor_reports_the_test_command_of_a_rule_breaking_board(there: Crew) -> None:
    text = there.paths.state.read_text()
    there.paths.state.write_text(
        text.replace("integration_command: null", "integration_command: make test").replace("MERGED", "CLAIMED", 1)
    )
    confirmed_settings.confirm_settings(there.paths, {"integration_command": "make test"}, there.board.read().config)
    report = doctor(there.paths.root)
    assert "broken, the first: " in next(one.text for one in report.findings if one.about == "board")
    assert told(there, "tests")[0].text.startswith("make test (config.integration_command")
    there.paths.state.write_text(": [")
    assert ["restore --last-good" in one.hint for one in told(there, "board")] == [True]
    assert told(there, "tests") == []


def test_doctor_checks_the_programs_that_the_agents_run(
    crew: Crew,  # noqa: F811
) -> None:
    def missing() -> list[Finding]:
        return [
            one for one in doctor(crew.paths.root).findings if "is not installed" in one.text and one.about != "box"
        ]

    assert [one.about for one in missing()] == ["claude"]
    started(crew, "coder-1", HERE)
    started(crew, "planner-1", HERE)
    assert missing() == []
    assert doctor(crew.paths.root).ok
    started(crew, "planner-1", "script:/no/such/program")
    assert [one.text for one in missing()] == ["is what planner-1 runs, and '/no/such/program' is not installed"]


def test_a_task_holder_whose_supervisor_was_killed_is_named(there: Crew, clock: FakeClock) -> None:
    claimed(there)
    assert told(there, "coder-1") == []
    run = "coder-1.3"
    there.run_dir(run).create(RunRecord(agent="coder-1", run=run, kind="work", started=clock.now(), task="c"))
    (found,) = told(there, "coder-1")
    assert (found.text, found.hint) == (
        "it holds c, and no supervisor runs",
        f"liza up --planners 0 --reviewers 0 --program {HERE}",
    )
    with Lock(there.paths.supervisor_lock("coder-1")):
        assert [one.text for one in told(there, "coder-1")] == [f"runs {HERE}"]


def test_a_place_without_a_crew_gets_the_command_to_begin(repo: Path) -> None:
    first = doctor(repo).findings[0]
    assert (first.about, first.ok, first.hint.partition(' "')[0]) == ("crew", True, "liza init")


def test_a_deleted_board_is_an_obstacle_until_its_restoration(there: Crew) -> None:
    shutil.rmtree(there.paths.liza)
    (lost,) = told(there, "crew")
    assert (lost.ok, lost.hint) == (False, "liza restore --last-good")


@pytest.mark.parametrize("damage", [{"settings": {"integration_timeout": "soon"}}, {"settings": 5}])
def test_damaged_pins_are_an_error_with_a_working_repair_command(there: Crew, damage: dict[str, object]) -> None:
    confirmed_settings.confirm_settings(there.paths, {"integration_command": "make test"}, there.board.read().config)
    words = json.loads(there.paths.pins.read_text()) | damage
    there.paths.pins.write_text(json.dumps(words))
    there.board.read()
    with pytest.raises(Missing) as caught:
        Crew(there.paths, there.clock).git  # noqa: B018
    assert caught.value.hint == "liza doctor --fix"
    settled = doctor(there.paths.root, fix=True).repaired
    assert settled[0].endswith("is kept as pins.json.broken")
    assert json.loads(there.paths.pins.with_name("pins.json.broken").read_text()) == words
    assert isinstance(confirmed_settings.export_settings(there.paths), bytes)
    assert told(there, "branch")[0].ok


@pytest.mark.parametrize(
    ("name", "lay"),
    [
        ("Makefile", lambda place: place.symlink_to("/proc/self/mem")),
        ("package.json", lambda place: place.write_text('{"a":' + "[" * 100_000)),
        ("pyproject.toml", lambda place: place.write_text("x = " + "[" * 100_000)),
    ],
    ids=["a Makefile that no read gives", "a deep package.json", "a deep pyproject.toml"],
)
def test_an_unreadable_project_file_is_a_finding_that_init_refuses(
    repo: Path, name: str, lay: Callable[[Path], object]
) -> None:
    lay(repo / name)
    (found,) = [one for one in doctor(repo).findings if f"{name} cannot be read: " in one.text]
    assert found.hint
    with pytest.raises(LizaError, match=f"{name} cannot be read: "):
        init(repo, InitOptions(goal="It is there"))

"""The context in a person's checkout: what they have is as before, and no odd file stops a command."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.briefs import checkout_brief
from liza.crew.crew import Crew
from liza.git import hiding
from liza.model.errors import NotRegularFile
from liza.model.paths import Paths
from liza.programs.presets.preset import Preset
from liza.project.baseline import InitOptions
from liza.project.init import init
from tests.conftest import KEY, FakeClock, git

PRESET = Preset(name="tidy", command="tidy", instructions=("AGENTS.md",))
RULES = "# House rules\nno tabs\n"


@pytest.fixture
def crew(repo: Path, clock: FakeClock) -> Crew:
    (repo / "AGENTS.md").write_text(RULES)
    git(repo, "add", "AGENTS.md")
    git(repo, "commit", "-q", "-m", "rules")
    init(repo, InitOptions(goal="x", no_test=True, program="script:/bin/true"))
    return Crew(Paths(repo), clock)


def ignore(line: str) -> None:
    """Take a notice."""


def by_hand(crew: Crew) -> Path:
    return crew.paths.liza / "by-hand"


def link_to_board(root: Path) -> None:
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").symlink_to(".liza/state.yaml")


def name_twice(root: Path) -> None:
    os.link(root / "AGENTS.md", root / "CLAUDE.md")


def leave_out(root: Path) -> None:
    git(root, "sparse-checkout", "set", "--no-cone", "/*", "!/AGENTS.md")
    assert not (root / "AGENTS.md").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (link_to_board, "a link into Liza's own files"),
        (name_twice, "has other names"),
        (leave_out, "the sparse checkout leaves AGENTS.md out"),
    ],
    ids=["board", "hard link", "sparse"],
)
def test_a_file_that_could_not_be_restored_is_not_written(
    crew: Crew, make: Callable[[Path], None], reason: str
) -> None:
    root = crew.paths.root
    make(root)
    before = (git(root, "status", "--porcelain"), git(root, "ls-files", "-t"), crew.paths.state.read_bytes())
    with checkout_brief.written(crew, PRESET, ignore) as brief:
        assert brief.placement.file is None
        assert reason in str(brief.placement.reason)
        assert git(root, "status", "--porcelain") == before[0]
    assert (git(root, "status", "--porcelain"), git(root, "ls-files", "-t"), crew.paths.state.read_bytes()) == before
    assert list(by_hand(crew).iterdir()) == []


def test_a_hard_link_from_a_backup_does_not_keep_contexts(crew: Crew) -> None:
    root = crew.paths.root
    with checkout_brief.written(crew, PRESET, ignore):
        name_twice(root)
    assert (root / "AGENTS.md").read_text() == RULES


def test_an_unwritable_file_gets_no_context_and_a_reason(crew: Crew) -> None:
    # A name that is too long fails for every user; permissions do not count for root.
    preset = Preset(name="tidy", command="tidy", instructions=("A" * 300,))
    with checkout_brief.written(crew, preset, ignore) as brief:
        assert "cannot be written: File name too long" in str(brief.placement.reason)
    assert hiding.list_bound_runs(crew.git) == ()


def test_an_empty_file_that_is_announced_to_git_stays_announced(crew: Crew) -> None:
    root = crew.paths.root
    git(root, "rm", "-q", "--cached", "AGENTS.md")
    (root / "AGENTS.md").write_text("")
    git(root, "add", "-N", "AGENTS.md")
    before = git(root, "status", "--porcelain")
    with checkout_brief.written(crew, PRESET, ignore) as brief:
        assert brief.placement.file == "AGENTS.md"
    assert git(root, "status", "--porcelain") == before


def test_another_git_command_at_work_stops_nothing(crew: Crew) -> None:
    root = crew.paths.root
    (root / ".git" / "index.lock").touch()
    with checkout_brief.written(crew, PRESET, ignore) as brief:
        assert brief.placement.file == "AGENTS.md"
    (root / ".git" / "index.lock").unlink()
    assert git(root, "status", "--porcelain") == ""
    assert hiding.list_bound_runs(crew.git) == ()


def test_while_one_command_writes_the_file_another_one_waits(crew: Crew) -> None:
    """Otherwise the recovery of one would remove the directory that another one has just made."""
    entered, done = threading.Event(), threading.Event()

    def recover() -> None:
        entered.set()
        checkout_brief.remove_abandoned(crew)
        done.set()

    directory = by_hand(crew) / "by-hand-1.4194304"
    with checkout_brief._changing_checkout(crew.paths):
        directory.mkdir(parents=True)
        thread = threading.Thread(target=recover)
        thread.start()
        entered.wait(10)
        assert not done.wait(0.2)
        assert directory.is_dir()
    thread.join(10)
    assert not directory.exists()


def plant_link(directory: Path) -> None:
    (directory.parent / "elsewhere").mkdir()
    (directory / "by-hand-1.77").symlink_to(directory.parent / "elsewhere")


def plant_record(directory: Path) -> None:
    (directory / "by-hand-1.77").mkdir()
    (directory / "by-hand-1.77" / "brief.json").write_text('{"file": 3}')


def plant_pipe(directory: Path) -> None:
    (directory / "by-hand-1.77").mkdir()
    os.mkfifo(directory / "by-hand-1.77" / "lock")


def plant_run(directory: Path) -> None:
    (directory / "coder-1.1").mkdir()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("plant", "is_told"),
    [(plant_link, False), (plant_record, True), (plant_pipe, True), (plant_run, False)],
    ids=["link", "record", "pipe", "run"],
)
def test_files_planted_beside_contexts_stop_neither_run_nor_recovery(
    crew: Crew, plant: Callable[[Path], None], is_told: bool
) -> None:
    hiding.bind_filter(crew.git, ["AGENTS.md"], "coder-1.1", KEY)
    by_hand(crew).mkdir()
    plant(by_hand(crew))
    (by_hand(crew) / "by-hand-1.78").mkdir()
    assert checkout_brief.remove_abandoned(crew) == ("by-hand-1.78",)
    notices: list[str] = []
    with checkout_brief.written(crew, PRESET, notices.append) as brief:
        assert brief.placement.file == "AGENTS.md"
    assert ["by-hand-1.77" in notice for notice in notices] == [True] * is_told
    assert (crew.paths.root / "AGENTS.md").read_text() == RULES
    assert hiding.list_bound_runs(crew.git) == ("coder-1.1",), "the brief of an agent is still hidden"


def test_a_link_in_place_of_the_directory_is_not_followed(crew: Crew) -> None:
    elsewhere = crew.paths.liza / "elsewhere"
    (elsewhere / "by-hand-1.77").mkdir(parents=True)
    by_hand(crew).symlink_to(elsewhere)
    assert checkout_brief.remove_abandoned(crew) == ()
    with pytest.raises(NotRegularFile), checkout_brief.written(crew, PRESET, ignore):
        pass
    assert [path.name for path in elsewhere.iterdir()] == ["by-hand-1.77"]

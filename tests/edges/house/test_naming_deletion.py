"""A supervisor that fails because .liza was deleted names the deletion, the place of the work, and one command."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from liza.crew.crew import Crew, find_crew, with_stop
from liza.crew.deleted_parts import AGAIN
from liza.model.errors import LizaError, Missing, NoCrew, Refused
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.supervisor.foreground import ExitWatch
from liza.supervisor.repository_location import naming_deletion
from liza.system.locks import Lock


@pytest.fixture
def crew(repo: Path) -> Crew:
    init(repo, InitOptions(goal="It is there", no_test=True))
    return find_crew(repo)


def test_an_error_caused_by_the_deletion_is_replaced_by_it(crew: Crew) -> None:
    shutil.rmtree(crew.paths.liza)
    sentence = r"was deleted under the crew; the work is in .*repo\.worktrees"
    with pytest.raises(Missing, match=sentence) as raised, naming_deletion(crew.paths):
        crew.board.read()
    assert raised.value.hint == AGAIN


@pytest.mark.parametrize("error", [Missing("a program", "install"), OSError("a disk")])
def test_another_error_of_a_whole_crew_is_kept(crew: Crew, error: Exception) -> None:
    with pytest.raises(type(error)) as raised, naming_deletion(crew.paths):
        raise error
    assert raised.value is error


def test_a_refusal_is_kept(crew: Crew) -> None:
    refused = Refused("a part was deleted", AGAIN)
    shutil.rmtree(crew.paths.liza)
    with pytest.raises(Refused) as raised, naming_deletion(crew.paths):
        raise refused
    assert raised.value is refused


def test_the_error_of_a_moved_repository_is_kept(crew: Crew, tmp_path: Path) -> None:
    def move() -> None:
        crew.paths.root.rename(tmp_path / "there")
        raise Missing("the repository was moved", "cd there")

    with pytest.raises(Missing, match="the repository was moved"), naming_deletion(crew.paths):
        move()


def test_a_board_that_is_gone_names_the_restore(crew: Crew) -> None:
    shutil.rmtree(crew.paths.liza)
    with pytest.raises(LizaError, match=r"state\.yaml is gone") as raised, crew.board.transaction("coder-1", "claim"):
        raise AssertionError
    assert with_stop(raised.value, crew).hint == "liza restore --last-good"


def test_the_hint_of_a_deleted_board_ends_the_remaining_processes(crew: Crew) -> None:
    holder = "import sys; file = open(sys.argv[1], 'w'); print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", holder, str(crew.paths.supervisor_lock("coder-1"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        shutil.rmtree(crew.paths.liza)
        error = NoCrew("the board is gone", "liza restore --last-good")
        assert with_stop(error, crew).hint == AGAIN
        supervisor.communicate()


def test_up_notices_agents_whose_locks_git_clean_deleted(crew: Crew) -> None:
    watch = ExitWatch(crew, ["coder-1", "planner-1"])
    assert not watch.has_reason()
    with Lock(crew.paths.supervisor_lock("coder-1")):
        assert not watch.has_reason()
        shutil.rmtree(crew.paths.locks)
        assert watch.has_reason()
    assert not watch.is_stopped()


def test_up_does_not_mistake_another_up_for_a_down(crew: Crew) -> None:
    path = crew.paths.locks / "down.lock"
    path.touch()
    with path.open() as other_look:
        fcntl.flock(other_look, fcntl.LOCK_SH)
        watch = ExitWatch(crew, ["coder-1"])
        assert not watch.is_stopped()
    with Lock(path):
        assert watch.is_stopped()


def test_up_reports_exits_again_after_an_incomplete_down(crew: Crew) -> None:
    watch, down = ExitWatch(crew, ["coder-1", "coder-2"]), Lock(crew.paths.locks / "down.lock")
    with Lock(crew.paths.supervisor_lock("coder-2")):
        with down:
            assert watch.is_stopped()
        assert not watch.is_stopped()
        with down:
            assert watch.is_stopped()
    # This time no supervisor is left: their exits may be reported to `up` after the end of the command.
    assert watch.is_stopped()

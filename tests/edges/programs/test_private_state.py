"""The private state of a program in a box: what comes in, and what comes back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from liza.model.paths import BoxPaths, Paths
from liza.programs.conversation_log import find_log_files
from liza.programs.presets.preset import Preset, StateDirectory
from liza.programs.session import private_state
from liza.programs.session.private_state import PrivateDirectory
from liza.programs.session.run_directory import RunDir, RunRecord
from tests.conftest import FakeClock

LOGIN = {"account": "ann", "oauth": {"access": "a1", "refresh": "r1", "expires": 1, "scopes": ["x"]}}
ROW = StateDirectory(
    path="~/.agent",
    variable="AGENT_HOME",
    copies=("settings.json", "login.json", "skills", ".agent.json"),
    elsewhere={".agent.json": "~/.agent.json"},
    renewed={"login.json": ("oauth.access", "oauth.refresh", "*.expires")},
)
PRESET = Preset(name="agent", state=(ROW,))


class Home:
    """A person's home, and the box of a slot with a run."""

    def __init__(self, tmp_path: Path) -> None:
        self.path, self.box = tmp_path / "home", BoxPaths(tmp_path / "slots" / ".boxes" / "s1")
        self.theirs = self.path / ".agent"
        (self.theirs / "skills").mkdir(parents=True)
        self.login = self.theirs / "login.json"
        self.login.write_text(json.dumps(LOGIN))
        self.login.chmod(0o640)
        (self.theirs / "settings.json").write_text("{}")
        (self.path / ".agent.json").write_text('{"seen": true}')
        self.run = RunDir(Paths(tmp_path / "project", tmp_path / "slots"), "coder-1.1")
        self.run.path.mkdir(parents=True)
        self.record = RunRecord(
            agent="coder-1",
            run="coder-1.1",
            kind="work",
            started=FakeClock().now(),
            worktree=str(tmp_path / "slots" / "s1"),
            is_confined=True,
        )
        self.heard: list[str] = []

    @property
    def own(self) -> Path:
        """The directory of the box."""
        return self.box.program_state("agent") / "AGENT_HOME"

    def bring(self, **environ: str) -> tuple[PrivateDirectory, ...]:
        directories = private_state.list_directories(PRESET, self.box, environ, self.path)
        private_state.bring_state(directories, self.box.program_state("agent"), self.run, self.heard.append)
        return directories

    def collect(self) -> None:
        private_state.collect_state(self.run, self.record, PRESET, self.heard.append)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_box_has_only_copies_of_settings_and_logins(home: Home) -> None:
    (home.theirs / "skills" / "one.md").write_text("skill")
    (home.theirs / "skills" / "link").symlink_to(home.path / ".agent.json")
    (home.theirs / "conversations").mkdir()
    directories = home.bring()
    assert private_state.state_variables(directories) == {"AGENT_HOME": str(home.own)}
    copied = {str(path.relative_to(home.own)): path.read_text() for path in home.own.rglob("*") if path.is_file()}
    assert copied == {
        "settings.json": "{}",
        "login.json": json.dumps(LOGIN),
        "skills/one.md": "skill",
        ".agent.json": '{"seen": true}',
    }
    assert (home.own / "login.json").stat().st_mode & 0o777 == 0o600


def test_the_directory_that_a_variable_names_is_copied(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "settings.json").write_text("other")
    home.bring(AGENT_HOME=str(other))
    assert [path.name for path in home.own.iterdir()] == ["settings.json"]
    assert (home.own / "settings.json").read_text() == "other"


def test_settings_that_a_session_overwrote_return_in_the_next_one(home: Home) -> None:
    home.bring()
    (home.own / "settings.json").write_text("a hook")
    (home.own / "conversation").write_text("kept")
    home.bring()
    assert (home.own / "settings.json").read_text() == "{}"
    assert (home.own / "conversation").read_text() == "kept"


@pytest.mark.parametrize("planted", ["", "login.json", "skills"])
def test_copies_do_not_follow_a_link_of_a_session(home: Home, tmp_path: Path, planted: str) -> None:
    (home.theirs / "skills" / "one.md").write_text("skill")
    home.bring()
    target = tmp_path / "target"
    target.mkdir()
    path = home.own / planted if planted else home.own
    path.rename(tmp_path / "aside")
    path.symlink_to(target)
    home.bring()
    assert list(target.iterdir()) == []
    assert not path.is_symlink()


def test_files_beyond_the_limit_are_not_copied_and_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_state, "MAX_FILES", 1)
    home.bring()
    assert "the box has only a part of" in home.heard[0]


def test_renewed_values_of_a_login_come_back_once(home: Home) -> None:
    home.bring()
    renewed = {"account": "ann", "oauth": {"access": "a2", "refresh": "r2", "expires": 2, "scopes": ["x"]}}
    (home.own / "login.json").write_text(json.dumps(renewed))
    home.collect()
    assert json.loads(home.login.read_text()) == renewed
    assert home.login.stat().st_mode & 0o777 == 0o640
    home.collect()
    assert len(home.heard) == 1


FORGED = {
    "another value": {**LOGIN, "account": "eve"},
    "another key": {**LOGIN, "hook": "sh"},
    "a missing key": {"oauth": LOGIN["oauth"]},
    "another type": {**LOGIN, "oauth": {**LOGIN["oauth"], "access": {"command": "sh"}}},  # type: ignore[dict-item]
    "a control character": {**LOGIN, "oauth": {**LOGIN["oauth"], "access": "a\r\nX: y"}},  # type: ignore[dict-item]
    "another list": {**LOGIN, "oauth": {**LOGIN["oauth"], "scopes": ["y"]}},  # type: ignore[dict-item]
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_login_that_differs_elsewhere_stays_in_the_box(home: Home, forged: object) -> None:
    home.bring()
    (home.own / "login.json").write_text(json.dumps(forged))
    home.collect()
    assert json.loads(home.login.read_text()) == LOGIN


@pytest.mark.parametrize("kind", ["fifo", "link", "large", "no json", "directory link", "program link"])
def test_only_a_small_regular_file_is_read_as_a_login(home: Home, tmp_path: Path, kind: str) -> None:
    home.bring()
    own = home.own / "login.json"
    renewed = json.dumps({**LOGIN, "oauth": {**LOGIN["oauth"], "access": "a2"}})  # type: ignore[dict-item]
    (tmp_path / "login.json").write_text(renewed)
    own.unlink()
    match kind:
        case "fifo":
            os.mkfifo(own)
        case "link":
            own.symlink_to(tmp_path / "login.json")
        case "large":
            own.write_text(renewed + " " * private_state.MAX_LOGIN)
        case "no json":
            own.write_text("[" * 100_000)
        case "directory link":
            home.own.rename(tmp_path / "aside")
            home.own.symlink_to(tmp_path)
        case _:
            home.own.parent.rename(tmp_path / "aside")
            (tmp_path / "planted" / home.own.name).mkdir(parents=True)
            (tmp_path / "planted" / home.own.name / "login.json").write_text(renewed)
            home.own.parent.symlink_to(tmp_path / "planted")
    home.collect()
    assert json.loads(home.login.read_text()) == LOGIN


def test_a_login_that_the_person_changed_meanwhile_stays(home: Home) -> None:
    home.bring()
    (home.own / "login.json").write_text(json.dumps({**LOGIN, "oauth": {**LOGIN["oauth"], "access": "a2"}}))  # type: ignore[dict-item]
    mine = {**LOGIN, "oauth": {**LOGIN["oauth"], "access": "mine"}}  # type: ignore[dict-item]
    home.login.write_text(json.dumps(mine))
    home.collect()
    assert json.loads(home.login.read_text()) == mine


def test_a_conversation_log_is_found_in_the_box_without_links(home: Home, tmp_path: Path) -> None:
    fields = {"file": "{config}/talks/*/{id}.jsonl", "config": ".agent"}
    preset = Preset(name="agent", state=(ROW,), journal=Preset(name="x").journal.__class__(**fields))
    (variables,) = [private_state.state_variables(home.bring())]
    talk = home.own / "talks" / "a" / "abc.jsonl"
    talk.parent.mkdir(parents=True)
    talk.write_text("{}\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "abc.jsonl").write_text("{}\n")
    (home.own / "talks" / "b").symlink_to(tmp_path / "b")
    assert find_log_files(preset, "abc", {"HOME": str(home.path), **variables}) == (talk,)
    home.own.rename(tmp_path / "aside")
    home.own.symlink_to(tmp_path / "aside")
    assert find_log_files(preset, "abc", {"HOME": str(home.path), **variables}) == ()

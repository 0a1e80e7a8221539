"""What keeps a program from working is found before a session is spent on it: with a real process for each probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model.paths import Paths
from liza.programs.presets import preset_table
from liza.programs.presets.preset import LoginSigns, Preset, StateDirectory
from liza.programs.presets.preset_table import find_errors
from liza.programs.session.program_faults import FaultKind, ProgramFault, find_faults, list_logins

SAYS = (
    'case "$1" in auth) echo "$ANSWER";; sandbox) echo; echo "bwrap: no namespace $ANSWER"; exit "${CODE:-0}";; esac\n'
)
STATUS = LoginSigns(env=("MY_KEY",), status=("auth",), missing='"in": ?false', next="run mine, /login")


@pytest.fixture
def command(tmp_path: Path) -> str:
    """A program that answers as the variables ANSWER and CODE say."""
    program = tmp_path / "mine"
    program.write_text(f"#!/bin/sh\n{SAYS}")
    program.chmod(0o755)
    return str(program)


def faults_of(
    row: Preset, home: Path, *, has_sandbox: bool = True, version: str = "", **env: str
) -> list[ProgramFault]:
    outside = {"PATH": "/usr/bin:/bin", "HOME": str(home), **env}
    return [*find_faults(row, version, outside, allowed=("ANSWER",), has_sandbox=has_sandbox)]


@pytest.mark.parametrize(
    ("env", "is_missing"),
    [
        ({"ANSWER": '{"in": false}'}, True),
        ({"ANSWER": '{"in": true}'}, False),
        ({"ANSWER": "something new"}, False),
        ({}, False),
        ({"ANSWER": '{"in": false}', "MY_KEY": "k"}, False),
        ({"ANSWER": '{"in": false}', "MY_KEY": ""}, True),
        # No session inherits it.
        ({"ANSWER": '{"in": false}', "OTHER_KEY": "k"}, True),
    ],
)
def test_a_missing_login_is_reported_by_the_program(
    env: dict[str, str], is_missing: bool, command: str, tmp_path: Path
) -> None:
    signs = LoginSigns(env=("MY_KEY", "OTHER_KEY"), status=STATUS.status, missing=STATUS.missing, next=STATUS.next)
    row = Preset(name="mine", command=command, env_allow=("MY_*",), login=signs)
    wanted = [ProgramFault(FaultKind.LOGIN, "not logged in", "run mine, /login", certain=True)]
    assert faults_of(row, tmp_path, **env) == (wanted if is_missing else [])


def test_a_missing_or_broken_program_has_no_known_login(tmp_path: Path) -> None:
    assert faults_of(Preset(name="mine", command="/nowhere/mine", login=STATUS), tmp_path) == []
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    assert faults_of(Preset(name="mine", command=str(broken), login=STATUS), tmp_path) == []


@pytest.mark.parametrize(
    ("file", "text", "env", "is_missing"),
    [
        (".mine/config", "user: a", {}, False),
        (".mine/config", "", {}, True),
        ("elsewhere/config", "user: a", {}, True),
        ("elsewhere/config", "user: a", {"MY_HOME": "{home}/elsewhere"}, False),
        (".keys", "KEY=1", {}, False),
    ],
)
def test_a_login_file_suffices_where_no_login_command_exists(
    file: str, text: str, env: dict[str, str], is_missing: bool, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    signs = LoginSigns(files={"${MY_HOME:-~/.mine}/config": "user", "~/.keys": "KEY="}, next="mine login")
    row = Preset(name="mine", command="/bin/true", env_allow=("MY_*",), login=signs)
    found = faults_of(row, tmp_path, **{name: value.replace("{home}", str(tmp_path)) for name, value in env.items()})
    assert found == ([ProgramFault(FaultKind.LOGIN, "no sign of a login", "mine login")] if is_missing else [])


def test_a_sandbox_that_cannot_start_is_named_with_its_cause(command: str, tmp_path: Path) -> None:
    row = Preset(name="mine", command=command, sandbox=("sandbox", "true"), env_allow=("CODE",))
    assert faults_of(row, tmp_path) == []
    (fault,) = faults_of(row, tmp_path, CODE="1", ANSWER="left")
    assert (fault.kind, fault.certain) == (FaultKind.SANDBOX, True)
    assert fault.text == "its sandbox cannot start: bwrap: no namespace left"
    assert faults_of(row, tmp_path, has_sandbox=False, CODE="1") == []


@pytest.mark.parametrize(
    ("tested", "installed", "is_older"),
    [
        ("2.1.197: work", "2.1.9 (Mine)", True),
        ("2.1.197: work", "mine-cli 2.1.197", False),
        ("2.1.197: work", "3.0", False),
        ("2.1.197: work", "1.99.500", True),
        ("2.1.197: work", "present", False),
        ("not run: 1.2.3", "0.1.0", False),
        ("", "0.1.0", False),
    ],
)
def test_an_older_program_than_the_tested_one_is_named(
    tested: str, installed: str, is_older: bool, tmp_path: Path
) -> None:
    row = Preset(name="mine", command="/bin/true", verified=tested, install="make mine")
    found = faults_of(row, tmp_path, version=installed)
    assert [(fault.kind, fault.next, fault.certain) for fault in found] == (
        [(FaultKind.OUTDATED, "make mine", False)] if is_older else []
    )


def test_signs_that_match_everything_or_do_not_compile_are_refused() -> None:
    for login in ({"missing": "x*"}, {"missing": "("}, {"files": {"~/.x": ".*"}}):
        assert [*find_errors({"login": login})], login
    assert not [*find_errors({"login": {"missing": "not logged", "files": {"~/.x": "a"}}})]


def test_each_login_of_the_table_is_detected_with_its_step() -> None:
    rows = preset_table.load_presets(Paths(Path("/nowhere")), Path("/nowhere")).rows
    logins = {name: row.login for name, row in rows.items() if row.login != LoginSigns()}
    assert {"claude", "codex", "gemini", "qwen", "copilot", "pi", "vibe"} <= logins.keys()
    for name, login in logins.items():
        assert login.next, name
        assert bool(login.status) == bool(login.missing), name
        assert login.status or login.files, name


def test_the_files_with_logins_are_those_that_the_rows_name() -> None:
    row = Preset(
        name="mine",
        command="x",
        login=LoginSigns(next="log in", files={"~/.mine/.env": "KEY"}),
        state=(StateDirectory(path="~/.mine", variable="MINE_HOME", renewed={"auth.json": ("token",)}),),
    )
    assert list_logins([row], {"HOME": "/h"}) == (Path("/h/.mine/.env"), Path("/h/.mine/auth.json"))
    assert list_logins([row], {"HOME": "/h", "MINE_HOME": "/m"})[1] == Path("/m/auth.json")

"""Accounts of programs: the person's file, real commands that print secrets, and the file of what is known of each."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from liza.commands.programs import format_accounts
from liza.crew.crew import Crew
from liza.model.errors import LizaError, Missing, NoAccount, UsageError
from liza.model.paths import Paths
from liza.model.session_ends import SessionOutcome
from liza.programs.presets import preset_table
from liza.programs.presets.preset import Preset
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.supervisor.launch import Launcher
from liza.system.clock import SystemClock
from liza.usage import account_choice, account_files
from liza.usage.account_choice import AccountChooser, find_wait
from liza.usage.account_files import Account
from liza.usage.program_accounts import check_accounts, show_accounts
from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord, Obstacle
from liza.usage.run_account import (
    RunAccount,
    account_of,
    has_run_account,
    read_run_account,
    session_environ,
    write_run_account,
)
from tests.conftest import FakeClock, until

PRESET = Preset(name="prog", config_dir_env="PROG_HOME", credential_env="PROG_KEY")
BARE = Preset(name="prog")
SECRET = "mellon-5f31c07a"


@pytest.fixture
def home() -> Path:
    return Path(os.environ["HOME"])


def write_file(home: Path, text: str, mode: int = 0o600) -> Path:
    path = account_files.accounts_path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def account(*command: str, variable: str = "", config_dir: str = "") -> Account:
    sets = "PROG_KEY" if command or variable else ""
    return Account("prog", "work", variable=variable, command=command, config_dir=config_dir, sets=sets)


def records_of(home: Path) -> dict[str, AccountRecord]:
    return account_files.read_records(account_files.records_path(os.environ, home))


# The file of the person


def test_accounts_are_read_in_the_order_of_the_file(home: Path) -> None:
    write_file(
        home,
        """
        order = "listed"
        [accounts.prog.zeta]
        variable = "ZETA"
        [accounts.prog.alpha]
        command = "pass show 'work key'"
        sets = "OTHER_KEY"
        valid_seconds = 3600
        [accounts.prog.max]
        config_dir = "~/.prog-max"
        [accounts.prog.own]
        login = true
        """,
    )
    file = account_files.read_accounts(home)
    assert file.accounts_of(PRESET) == (
        Account("prog", "zeta", variable="ZETA", sets="PROG_KEY"),
        Account("prog", "alpha", command=("pass", "show", "work key"), sets="OTHER_KEY", valid_seconds=3600),
        Account("prog", "max", config_dir=str(home / ".prog-max")),
        Account("prog", "own"),
    )
    assert file.accounts_of(Preset(name="other")) == ()


def test_without_a_file_there_are_no_accounts(home: Path) -> None:
    assert account_files.read_accounts(home).accounts_of(PRESET) == ()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[accounts.prog.a]\nvariable = 'A'\ncommand = 'b'", "keep one"),
        ("[accounts.prog.a]", "needs variable, command, config_dir, or login"),
        ("[accounts.prog.a]\nlogin = true\nvariable = 'A'", "login = true is the program's own login"),
        ("[accounts.prog.a]\nvariable = 'A B'", "A-Za-z_"),
        ("[accounts.prog.a]\nkey = 'sk-1'", "[accounts.prog.a] key is unknown, expected one of variable, "),
        ("[accounts.prog.A]\nvariable = 'A'", "lower-case"),
        ("[accounts.prog.a]\ncommand = './steal'", "must be a name on PATH or an absolute path"),
        ("[accounts.prog.a]\ncommand = ['bin/steal']", "must be a name on PATH or an absolute path"),
        ('[accounts.prog.a]\ncommand = "pass \'x"', "quotation"),
        ("[accounts.prog.a]\ncommand = ''", "command is empty"),
        ("[accounts.prog.a]\nconfig_dir = 'here'", "absolute path"),
        ("[accounts.prog.a]\nvariable = 'A'\nvalid_seconds = 1", ">= 10"),
        ("order = 'random'", "expected"),
        ("[accounts", "table declaration"),
        ("accounts = 3", "expected a mapping"),
    ],
)
def test_a_wrong_accounts_file_is_an_error_with_its_cause(home: Path, text: str, reason: str) -> None:
    path = write_file(home, text)
    with pytest.raises(UsageError, match=r"accounts\.toml") as raised:
        account_files.read_accounts(home)
    assert reason in raised.value.message
    assert str(path) in raised.value.hint


def test_a_file_that_others_may_change_is_refused(home: Path) -> None:
    path = write_file(home, "[accounts.prog.a]\nvariable = 'A'", 0o620)
    with pytest.raises(UsageError, match="0620: other users may change it") as raised:
        account_files.read_accounts(home)
    assert raised.value.hint == f"chmod 600 {path}"
    path.chmod(0o644)
    assert account_files.read_accounts(home).accounts_of(PRESET)


def test_an_account_that_the_program_cannot_use_is_an_error(home: Path) -> None:
    write_file(home, "[accounts.prog.a]\nconfig_dir = '/x'")
    with pytest.raises(UsageError, match="no variable for its directory"):
        account_files.read_accounts(home).accounts_of(BARE)
    write_file(home, "[accounts.prog.a]\nvariable = 'A'")
    with pytest.raises(UsageError, match='needs sets = "VARIABLE"'):
        account_files.read_accounts(home).accounts_of(BARE)


# The secret


@pytest.mark.parametrize(
    "command",
    [
        ("echo", SECRET),
        ("printf", SECRET),
        ("printf", f"\\n  {SECRET}\\r\\n"),
        # A background process keeps the output open, as the agent of a password manager may.
        ("sh", "-c", f"echo {SECRET}; sleep 5 & "),
    ],
)
def test_the_only_line_that_a_command_prints_is_the_secret(home: Path, command: tuple[str, ...]) -> None:
    secret = account_files.read_secret(account(*command), os.environ, home)
    assert secret is not None
    assert secret.value == SECRET
    assert SECRET not in repr(secret)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("printf", f"{SECRET}\\n{SECRET}"), "2 lines, and a secret is one line"),
        (("true",), "printed nothing"),
        (("sh", "-c", f"echo {SECRET}; exit 3"), "exited with 3"),
        (("sh", "-c", f"echo {SECRET}; kill -9 $$"), "was ended by signal 9"),
        (("sh", "-c", f"echo {SECRET} >&2; exit 1"), "exited with 1"),
        (("no-such-password-manager",), "is not installed, or not in PATH"),
        (("/no/such/file",), "does not exist or is not executable"),
        (("/etc",), "does not exist or is not executable"),
        (("head", "-c", "20000", "/dev/zero"), "printed more than 16384 bytes"),
        (("printf", "\\377\\376"), "printed no text"),
        (("printf", f"{SECRET}\\033[2J"), "control characters"),
        (("sh", "-c", f"read answer < /dev/tty && echo {SECRET}"), "exited with"),
        (("sh", "-c", f"read answer && echo {SECRET}"), "exited with"),
    ],
)
def test_the_error_of_a_failed_secret_command_omits_its_output(
    home: Path, command: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(Missing) as raised:
        account_files.read_secret(account(*command), os.environ, home)
    assert raised.value.message.startswith("account prog/work: ")
    assert reason in raised.value.message
    assert SECRET not in f"{raised.value} {raised.value.hint}"
    assert raised.value.hint


def test_a_command_that_hangs_is_ended_with_its_children(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_files, "COMMAND_LIMIT", 0.5)
    pids = tmp_path / "pids"
    for closes in ("", "exec >&-; "):
        hangs = f"{closes}sleep 600 & echo $! $$ > {pids}; wait"
        with pytest.raises(Missing, match=r"did not end within 0\.5 s"):
            account_files.read_secret(account("sh", "-c", hangs), os.environ, home)
        for pid in pids.read_text().split():
            until(lambda pid=pid: not Path(f"/proc/{pid}/cmdline").exists() or _is_zombie(pid), f"{pid} lives")


def _is_zombie(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_runs_at_home_without_the_variables_of_liza(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIZA_RUN", "coder-1.1")
    monkeypatch.setenv("VAULT", "here")
    secret = account_files.read_secret(account("sh", "-c", 'echo "$PWD ${LIZA_RUN-none} $VAULT"'), os.environ, home)
    assert secret is not None
    assert secret.value == f"{home} none here"


def test_a_variable_that_is_not_set_is_an_error(home: Path) -> None:
    for value in ({}, {"KEY_WORK": " \n"}):
        with pytest.raises(Missing, match="variable KEY_WORK is not set") as raised:
            account_files.read_secret(account(variable="KEY_WORK"), value, home)
        assert raised.value.hint == "export KEY_WORK=…"
    with pytest.raises(Missing, match="2 lines"):
        account_files.read_secret(account(variable="KEY_WORK"), {"KEY_WORK": "a\nb"}, home)


# The choice


TWO = """
[accounts.prog.a]
variable = "KEY_A"
[accounts.prog.b]
command = ["echo", "secret-of-b"]
"""


def chooser(home: Path, told: list[str] | None = None, preset: Preset = PRESET, **environ: str) -> AccountChooser:
    return AccountChooser(preset, {**os.environ, **environ}, (told if told is not None else []).append, home)


def test_a_session_gets_only_the_credentials_of_its_account(home: Path, clock: FakeClock) -> None:
    write_file(home, TWO)
    outside = {"KEY_A": "secret-of-a", "PROG_KEY": "of-the-person", "PATH": "/bin"}
    chosen = chooser(home, **outside).take(clock.now())
    assert chosen.apply_to(outside) == {"PROG_KEY": "secret-of-a", "PATH": "/bin"}
    path = account_files.records_path(os.environ, home)
    account_files.change_record(path, "prog/a", lambda record: account_rules.after_refusal(record, "401"))
    chosen = chooser(home, **outside).take(clock.now())
    assert chosen.apply_to(outside) == {"PROG_KEY": "secret-of-b", "PATH": "/bin"}
    assert chooser(home).hide_credentials(outside) == {"PATH": "/bin"}


def test_without_accounts_nothing_changes(home: Path, clock: FakeClock) -> None:
    env = {"PROG_KEY": "of-the-person"}
    assert chooser(home).take(clock.now()).apply_to(env) == env
    assert chooser(home).hide_credentials(env) == env
    write_file(home, "[accounts.other.a]\nvariable = 'PROG_KEY'")
    assert chooser(home).take(clock.now()).apply_to(env) == env
    assert not account_files.records_path(os.environ, home).exists()


def test_an_account_can_have_a_directory_or_the_persons_login(home: Path, clock: FakeClock, tmp_path: Path) -> None:
    write_file(home, f"[accounts.prog.max]\nconfig_dir = '{tmp_path}'\n[accounts.prog.own]\nlogin = true")
    chosen = chooser(home).take(clock.now())
    assert chosen.apply_to({"PROG_KEY": "of-the-person"}) == {"PROG_HOME": str(tmp_path)}
    assert chooser(home).take(clock.now(), "prog/own").apply_to({"PROG_KEY": "x", "PROG_HOME": "/y"}) == {
        "PROG_HOME": "/y"
    }


def test_an_account_with_an_unreadable_secret_is_tried_again_later(home: Path, clock: FakeClock) -> None:
    write_file(home, TWO)
    told: list[str] = []
    assert chooser(home, told).take(clock.now()).apply_to({}) == {"PROG_KEY": "secret-of-b"}
    assert told == ["! account prog/a: variable KEY_A is not set (next: export KEY_A=…)"]
    assert records_of(home)["prog/a"].obstacle is Obstacle.SOURCE
    assert chooser(home, KEY_A="new").take(clock.now()).apply_to({}) == {"PROG_KEY": "secret-of-b"}
    clock.advance(account_rules.SOURCE_RETRY.total_seconds())
    assert chooser(home, KEY_A="new").take(clock.now()).apply_to({}) == {"PROG_KEY": "new"}


def test_without_a_usable_account_no_session_starts_and_waiting_ends(home: Path, clock: FakeClock) -> None:
    write_file(home, "[accounts.prog.a]\nvariable = 'KEY_A'\n[accounts.prog.b]\ncommand = 'false'")
    assert find_wait(PRESET, os.environ, clock.now(), home) is None
    with pytest.raises(NoAccount, match=r"before .*prog/a: variable KEY_A is not set; prog/b: command false exited"):
        chooser(home).take(clock.now())
    wait = find_wait(PRESET, os.environ, clock.now(), home)
    assert wait is not None
    assert wait.until == clock.now() + account_rules.SOURCE_RETRY
    clock.advance(account_rules.SOURCE_RETRY.total_seconds())
    assert find_wait(PRESET, os.environ, clock.now(), home) is None


def test_records_that_cannot_be_written_stop_no_session(home: Path, clock: FakeClock) -> None:
    write_file(home, TWO)
    path = account_files.records_path(os.environ, home)
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("a file in place of the directory")
    told: list[str] = []
    assert chooser(home, told).take(clock.now()).apply_to({}) == {"PROG_KEY": "secret-of-b"}
    assert told[0] == "! account prog/a: variable KEY_A is not set (next: export KEY_A=…)"
    assert told[1].startswith("! what is known of accounts cannot be written: ")
    write_file(home, "[accounts.prog.a]\nvariable = 'KEY_A'")
    with pytest.raises(NoAccount, match="prog/a: variable KEY_A is not set"):
        chooser(home).take(clock.now())


def test_a_broken_file_starts_no_session_with_another_login(home: Path, clock: FakeClock) -> None:
    path = write_file(home, "[accounts")
    with pytest.raises(NoAccount, match=str(path)):
        chooser(home).take(clock.now())
    wait = find_wait(PRESET, os.environ, clock.now(), home)
    assert wait is not None
    assert str(path) in wait.reason
    write_file(home, TWO)
    assert find_wait(PRESET, os.environ, clock.now(), home) is None


# What is known of the accounts


def test_a_damaged_file_of_records_stops_nothing_and_is_replaced(home: Path, clock: FakeClock) -> None:
    write_file(home, TWO)
    path = account_files.records_path(os.environ, home)
    path.parent.mkdir(parents=True)
    for damage in (b'{"prog/a": {"until": "neve', b"\xff\xfe", b"[]", b'{"prog/a": {"until": "2026-01-01T00:00:00"}}'):
        path.write_bytes(damage)
        with pytest.raises(LizaError, match="cannot be read"):
            account_files.read_records(path)
        assert find_wait(PRESET, os.environ, clock.now(), home) is None
        assert chooser(home, KEY_A="k").take(clock.now()).apply_to({}) == {"PROG_KEY": "k"}
        account_choice.record_refusal(path, "prog/a", "401")
        assert set(records_of(home)) == {"prog/a"}


def test_the_records_are_the_users_alone(home: Path) -> None:
    path = account_files.records_path(os.environ, home)
    account_choice.record_refusal(path, "prog/a", "401")
    assert path.stat().st_mode & 0o777 == 0o600


# A session and its account


@pytest.fixture
def run(tmp_path: Path, clock: FakeClock) -> RunDir:
    directory = RunDir(Paths(tmp_path), "coder-1.1")
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now()))
    return directory


def test_a_session_at_its_limit_leaves_its_account_limited(home: Path, clock: FakeClock, run: RunDir) -> None:
    write_file(home, TWO)
    chooser(home, KEY_A="k").take(clock.now()).record(run)
    assert read_run_account(run) == RunAccount(account="prog/a", read=clock.now())
    end = SessionEnd(
        SessionOutcome.QUOTA, f"a usage limit is reached: password={SECRET}", clock.now() + timedelta(hours=2)
    )
    obstacle = account_choice.record_session_end(run, end, os.environ, clock.now(), 5.0)
    assert obstacle is not None
    assert "account prog/a is not used until 2026-01-01T14:00:00Z" in obstacle.text
    assert SECRET not in obstacle.text
    assert chooser(home, KEY_A="k").take(clock.now()).apply_to({}) == {"PROG_KEY": "secret-of-b"}
    clock.advance(7200)
    assert chooser(home, KEY_A="k").take(clock.now()).apply_to({}) == {"PROG_KEY": "k"}


def test_a_refused_login_sets_its_account_aside_for_a_person(home: Path, clock: FakeClock, run: RunDir) -> None:
    write_run_account(run, RunAccount(account="prog/a", read=clock.now()))
    end = SessionEnd(SessionOutcome.UNUSABLE, "401", needs_person=True, login_refused=True)
    obstacle = account_choice.record_session_end(run, end, os.environ, clock.now(), 5.0)
    assert obstacle is not None
    assert obstacle.next == "liza programs accounts --clear prog/a"
    clock.advance(1e7)
    assert not account_rules.is_usable(records_of(home)["prog/a"], clock.now())


@pytest.mark.parametrize(
    "end",
    [
        SessionEnd(SessionOutcome.FINISHED),
        SessionEnd(SessionOutcome.CRASHED, "exit 1"),
        SessionEnd(SessionOutcome.UNUSABLE, "it waits for a person", needs_person=True),
    ],
)
def test_other_ends_leave_the_account_unblamed(home: Path, clock: FakeClock, run: RunDir, end: SessionEnd) -> None:
    write_run_account(run, RunAccount(account="prog/a", read=clock.now()))
    assert account_choice.record_session_end(run, end, os.environ, clock.now(), 5.0) is None
    assert records_of(home) == {}


def test_a_success_ends_the_count_of_limits(home: Path, clock: FakeClock, run: RunDir) -> None:
    write_run_account(run, RunAccount(account="prog/a", read=clock.now()))
    for end in (SessionEnd(SessionOutcome.QUOTA, "429"), SessionEnd(SessionOutcome.FINISHED)):
        account_choice.record_session_end(run, end, os.environ, clock.now(), 5.0)
    assert records_of(home)["prog/a"].failures == 0


def test_the_logs_of_a_session_are_in_its_accounts_directory(clock: FakeClock, run: RunDir) -> None:
    environ = {"PROG_HOME": "/of/the/person", "HOME": "/home/x"}
    assert session_environ(run, PRESET, environ) == environ
    write_run_account(run, RunAccount(account="prog/a", read=clock.now(), config_dir="/own"))
    assert session_environ(run, PRESET, environ) == {"PROG_HOME": "/own", "HOME": "/home/x"}
    assert session_environ(run, BARE, environ) == environ


@pytest.mark.parametrize("change", ["renamed", "other state directory"])
def test_a_session_with_an_unrecorded_account_is_not_continued(
    change: str, home: Path, clock: FakeClock, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(home, TWO)
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), has_account=True))
    chooser(home, KEY_A="k").take(clock.now()).record(run)
    assert account_of(run) == "prog/a"
    said: list[str] = []
    launcher = Launcher(Crew(run.paths, clock), PRESET, dict(os.environ), said.append)
    assert launcher.conversations.is_account_known(run)
    if change == "renamed":
        (tmp_path / ".liza").rename(tmp_path / "other")
        (tmp_path / "new").mkdir()
        (tmp_path / "other").rename(tmp_path / "new" / ".liza")
        run = RunDir(Paths(tmp_path / "new"), run.run)
    else:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(Missing, match="not on record") as missing:
        read_run_account(run)
    assert missing.value.hint == "liza down && liza up"
    assert account_of(run) is None
    assert not launcher.conversations.is_account_known(run)
    assert len(said) == 1
    assert "its conversation is not continued" in said[0]


def test_a_session_never_gets_the_account_of_an_earlier_crew(home: Path, clock: FakeClock, run: RunDir) -> None:
    write_file(home, TWO)
    chooser(home, KEY_A="k").take(clock.now()).record(run)
    write_file(home, "")
    chooser(home).take(clock.now()).record(run)
    assert read_run_account(run) is None


def test_the_records_of_runs_without_a_directory_are_removed(clock: FakeClock, run: RunDir) -> None:
    ended = RunDir(run.paths, "coder-1.2")
    for directory in (ended, run):
        write_run_account(directory, RunAccount(account="prog/a", read=clock.now()))
    assert read_run_account(ended) is None
    assert has_run_account(run)
    assert not has_run_account(ended)


# What a person sees


def test_accounts_are_shown_with_their_state_but_no_secret(
    home: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no accounts" in format_accounts(show_accounts())
    write_file(
        home,
        f"""
        [accounts.script.a]
        command = ["echo", "{SECRET}"]
        sets = "KEY"
        [accounts.script.b]
        variable = "KEY_B"
        sets = "KEY"
        [accounts.scirpt.c]
        login = true
        """,
    )
    path = account_files.records_path(os.environ, home)
    later = SystemClock().now() + timedelta(hours=1)
    for name in ("script/a", "script/b"):
        account_files.change_record(
            path, name, lambda record: account_rules.after_limit(record, SystemClock().now(), "429", later, 5.0)
        )
    report = show_accounts()
    first, second = report.accounts
    assert (first.id, first.state, first.until, first.problem) == ("script/a", "limited", later, None)
    assert second.problem == "account script/b: variable KEY_B is not set"
    assert report.notices == (
        f"{home}/.config/liza/accounts.toml has accounts of an unknown program 'scirpt'; did you mean 'script'?",
    )
    monkeypatch.setenv("KEY_B", SECRET)
    checked = show_accounts(check=True, clear="script/a")
    assert checked.ok
    assert [row.checked for row in checked.accounts] == [True, True]
    assert [line for line in format_accounts(checked).splitlines() if line.endswith(": its secret can be read")]
    assert "can be read" not in format_accounts(report)
    assert [row.state for row in checked.accounts] == ["usable", "limited"]
    assert SECRET not in f"{report} {checked} {format_accounts(report)} {format_accounts(checked)}"
    with pytest.raises(UsageError, match=r"unknown account 'script/z'; did you mean 'script/"):
        show_accounts(clear="script/z")


def test_doctor_names_unusable_accounts_and_runs_no_command(home: Path, clock: FakeClock, tmp_path: Path) -> None:
    table = preset_table.load_presets(Paths(tmp_path))
    assert check_accounts(table) == []
    touched = tmp_path / "touched"
    write_file(
        home,
        f"""
        [accounts.script.runs]
        command = ["touch", "{touched}"]
        sets = "KEY"
        [accounts.script.none]
        command = "no-such-password-manager"
        sets = "KEY"
        [accounts.script.unset]
        variable = "KEY_B"
        sets = "KEY"
        """,
    )
    findings = check_accounts(table)
    # One of them works, so the crew can work.
    assert [(finding.ok, finding.hint) for finding in findings] == [
        (True, ""),
        (True, "liza programs accounts"),
        (True, "export KEY_B=…"),
    ]
    assert not touched.exists()
    path = account_files.records_path(os.environ, home)
    account_files.change_record(path, "script/runs", lambda record: account_rules.after_refusal(record, "401"))
    findings = check_accounts(table)
    assert [finding.ok for finding in findings] == [False, False, False]
    first = findings[0]
    assert first.text == "script/runs is set aside: 401"
    assert first.hint == "liza programs accounts --clear script/runs"
    path.write_text("{")
    (finding,) = check_accounts(table)
    assert "cannot be read" in finding.text
    write_file(home, "[accounts.script.a]\nlogin = true", 0o666)
    (finding,) = check_accounts(table)
    assert finding.hint.startswith("chmod 600 ")

"""Credentials of a worker that uses the API: it gets others before they end, once, and no file has the secret."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from liza.api.identity import (
    Credential,
    CredentialReport,
    CredentialState,
    acknowledge_credentials,
    current_credentials,
    list_rotated,
    report_credential,
)
from liza.crew.crew import Crew
from liza.model.errors import Missing, NoAccount, RunIsOver
from liza.model.paths import Paths
from liza.model.spending import TokenUsage
from liza.programs.presets import preset_table
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.usage import account_files
from liza.usage.account_choice import AccountChooser
from liza.usage.rules import account_rules
from liza.usage.rules.telemetry_rules import TelemetryEvent, TurnUsage
from liza.usage.run_account import account_parts
from liza.usage.telemetry_log import TelemetryLog
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock

RUN = "coder-1.7"
SECRET = "mellon-"
TWO = """
[accounts.script.a]
command = ["echo", "mellon-a"]
sets = "KEY"
[accounts.script.b]
command = ["echo", "mellon-b"]
sets = "OTHER_KEY"
type = "token"
"""


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    crew = Crew(Paths(tmp_path), clock)
    crew.board.create(FIRST)
    return crew


def write_accounts(text: str) -> None:
    path = account_files.accounts_path(Path.home())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def start(crew: Crew, run: str = RUN) -> RunDir:
    """The run of a worker, with an account as a supervisor chooses it."""
    directory = crew.run_dir(run)
    directory.create(
        RunRecord(agent="coder-1", run=run, kind="work", started=crew.clock.now(), task="task-1", program="script")
    )
    preset = preset_table.load_presets(crew.paths).rows["script"]
    AccountChooser(preset, os.environ, print).take(crew.clock.now()).record(directory)
    return directory


def values(credentials: tuple[Credential, ...]) -> list[tuple[str, str, str]]:
    return [(each.type, each.name, each.value) for each in credentials]


def report(crew: Crew, state: CredentialState, name: str = "KEY", seconds: float | None = None) -> bool:
    until = None if seconds is None else crew.clock.now() + timedelta(seconds=seconds)
    request = CredentialReport(run_id=RUN, state=state, name=name, until=until, reason="it said so")
    return report_credential(crew, request).applied


def stored(crew: Crew) -> bytes:
    """Every byte below the crew and the state directory of the user."""
    roots = (crew.paths.root, Path.home() / ".local")
    return b"".join(path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file())


def test_a_worker_at_its_limit_gets_credentials_until_it_acknowledges(crew: Crew) -> None:
    write_accounts(TWO)
    run = start(crew)
    assert values(current_credentials(crew, run)) == [("api_key", "KEY", "mellon-a")]
    assert list_rotated(crew, run) == ()
    assert report(crew, CredentialState.LIMITED, seconds=3600)
    (event,) = list_rotated(crew, run)
    assert (event.id, event.reason) == ("credentials-1", "it said so")
    assert values(event.credentials) == [("token", "OTHER_KEY", "mellon-b")]
    assert SECRET.encode() not in stored(crew)
    # The same stream does not send it twice; a new stream does, until it is acknowledged.
    assert list_rotated(crew, run, {event.id}) == ()
    assert list_rotated(crew, run) == (event,)
    assert values(current_credentials(crew, run)) == values(event.credentials)
    assert acknowledge_credentials(run, ["other"]) == 0
    assert acknowledge_credentials(run, [event.id, "other"]) == 1
    assert acknowledge_credentials(run, [event.id]) == 0
    assert list_rotated(crew, run) == ()


def test_each_account_of_a_worker_has_its_own_usage(crew: Crew, clock: FakeClock) -> None:
    write_accounts(TWO)
    run = start(crew)
    log = TelemetryLog(run.path)
    assert account_parts(run, TokenUsage(input=5)) == {}, "the whole usage is of the one account"

    def use(tokens: int) -> None:
        log.append([TelemetryEvent(timestamp=crew.clock.now(), usage=TurnUsage(input_tokens=tokens, output_tokens=1))])

    use(1000)
    assert report(crew, CredentialState.LIMITED, seconds=3600)
    (event,) = list_rotated(crew, run)
    assert acknowledge_credentials(run, [event.id]) == 1
    use(300)
    sums = log.read()
    assert sums is not None
    assert account_parts(run, sums.used) == {
        "script/a": TokenUsage(input=1000, output=1),
        "script/b": TokenUsage(input=300, output=1),
    }
    clock.advance(4000)
    assert report(crew, CredentialState.LIMITED, "OTHER_KEY", seconds=3600)
    assert list_rotated(crew, run) != ()
    use(20)
    sums = log.read()
    assert sums is not None
    parts = account_parts(run, sums.used)
    assert parts["script/b"] == TokenUsage(input=300, output=1)
    assert sum(parts.values(), TokenUsage()) == sums.used


def test_another_sessions_limit_changes_a_living_workers_account(crew: Crew) -> None:
    write_accounts(TWO)
    run = start(crew)
    path = account_files.records_path(os.environ, Path.home())
    account_files.change_record(
        path, "script/a", lambda record: account_rules.after_limit(record, crew.clock.now(), "429", None, 5.0)
    )
    (event,) = list_rotated(crew, run)
    assert values(event.credentials) == [("token", "OTHER_KEY", "mellon-b")]


def test_a_secret_that_ends_is_read_again_before_its_end(crew: Crew, clock: FakeClock, tmp_path: Path) -> None:
    counter = tmp_path.parent / f"{tmp_path.name}.counter"
    write_accounts(
        f"""
        [accounts.script.a]
        command = ["sh", "-c", "echo x >> {counter}; echo token-$(wc -l < {counter})"]
        sets = "KEY"
        valid_seconds = 1000
        """
    )
    run = start(crew)
    clock.advance(799)
    assert list_rotated(crew, run) == ()
    clock.advance(1)
    (event,) = list_rotated(crew, run)
    assert event.reason == "the credential expires"
    (credential,) = event.credentials
    assert credential.value == "token-2"
    assert credential.expires_at == clock.now() + timedelta(seconds=1000)
    assert list_rotated(crew, run, {event.id}) == ()


def test_a_worker_reporting_credential_expiry_gets_another_in_time(crew: Crew, clock: FakeClock) -> None:
    write_accounts(TWO)
    run = start(crew)
    assert report(crew, CredentialState.EXPIRES, seconds=600)
    assert list_rotated(crew, run) == ()
    clock.advance(500)
    (event,) = list_rotated(crew, run)
    assert values(event.credentials) == [("api_key", "KEY", "mellon-a")]
    assert event.credentials[0].expires_at is None


def test_a_refused_credential_is_set_aside_and_replaced(crew: Crew) -> None:
    write_accounts(TWO)
    run = start(crew)
    assert report(crew, CredentialState.REFUSED)
    assert "liza programs accounts --clear script/a" in (crew.paths.liza / "alerts.log").read_text()
    (event,) = list_rotated(crew, run)
    assert values(event.credentials) == [("token", "OTHER_KEY", "mellon-b")]
    # A report about the earlier credential that crossed the rotation does not set the second aside.
    assert not report(crew, CredentialState.REFUSED)
    acknowledge_credentials(run, [event.id])
    assert not report(crew, CredentialState.REFUSED, name="KEY")
    assert report(crew, CredentialState.REFUSED, name="OTHER_KEY")
    # Without another account it keeps what it has.
    assert list_rotated(crew, run) == ()


def test_an_account_with_a_directory_is_sent_as_a_variable(crew: Crew, tmp_path: Path) -> None:
    (crew.paths.liza / "programs.toml").write_text("[programs.script]\nconfig_dir_env = 'PROG_HOME'\n")
    write_accounts(f"[accounts.script.a]\nlogin = true\n[accounts.script.b]\nconfig_dir = '{tmp_path}'\n")
    run = start(crew)
    assert current_credentials(crew, run) == ()
    assert report(crew, CredentialState.LIMITED, name="")
    (event,) = list_rotated(crew, run)
    assert (event.credentials, event.env) == ((), {"PROG_HOME": str(tmp_path)})


def test_a_run_without_accounts_has_no_credentials_to_report(crew: Crew) -> None:
    run = start(crew)
    assert current_credentials(crew, run) == ()
    assert list_rotated(crew, run) == ()
    assert acknowledge_credentials(run, ["credentials-1"]) == 0
    assert not report(crew, CredentialState.LIMITED)


def test_an_unreadable_secret_fails_only_that_request(crew: Crew) -> None:
    write_accounts(TWO)
    run = start(crew)
    write_accounts(TWO.replace('["echo", "mellon-a"]', '"false"'))
    with pytest.raises(Missing, match="script/a: command false exited with 1"):
        current_credentials(crew, run)
    write_accounts("[accounts.script.other]\nlogin = true")
    with pytest.raises(NoAccount, match="script/a is not in"):
        current_credentials(crew, run)
    path = account_files.records_path(os.environ, Path.home())
    path.write_text("{damaged")
    assert list_rotated(crew, run) == ()


def test_a_run_that_is_over_gets_no_other_credential(crew: Crew) -> None:
    write_accounts(TWO)
    run = start(crew)
    report(crew, CredentialState.LIMITED)
    run.mark_concluded("finished")
    with pytest.raises(RunIsOver):
        list_rotated(crew, run)
    with pytest.raises(RunIsOver):
        report(crew, CredentialState.LIMITED)

"""The tokens of a run: the first is used once, whoever tries at the same time, and neither is on disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.api.identity import (
    BearerCache,
    Credential,
    IdentityAnswer,
    IdentityRequest,
    find_run,
    identify,
    issue_token,
)
from liza.crew.crew import Crew
from liza.model.errors import LizaError, RunIsOver, TokenRefused
from liza.model.paths import Paths
from liza.programs.session.run_directory import RunDir, RunRecord
from tests.conftest import FakeClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    return Crew(Paths(tmp_path), clock)


@pytest.fixture
def run(crew: Crew) -> RunDir:
    directory = crew.run_dir("coder-1.7")
    record = RunRecord(agent="coder-1", run="coder-1.7", kind="work", started=NOW, task="task-1", worktree="/w/task-1")
    directory.create(record)
    return directory


def test_a_worker_learns_its_identity_and_gets_a_new_token(crew: Crew, run: RunDir) -> None:
    secret = Credential(type="api_key", name="KEY", value="v")
    token = issue_token(run, NOW)
    answer = identify(crew, IdentityRequest(token=token, session_id="s-1"), lambda record: (secret,))
    assert (answer.run_id, answer.role, answer.agent_name, answer.task_id) == (
        "coder-1.7",
        "coder",
        "coder-1",
        "task-1",
    )
    assert (answer.session_id, answer.worktree, answer.repository) == ("s-1", "/w/task-1", str(crew.paths.root))
    assert answer.env["LIZA_TASK"] == "task-1"
    assert answer.credentials == (secret,)
    assert find_run(crew.paths, answer.token).run == "coder-1.7"
    assert BearerCache().verify(run, answer.token)
    assert not BearerCache().verify(run, token)
    assert not BearerCache().verify(run, answer.token[:-1] + ("a" if answer.token[-1] != "a" else "b"))
    stored = b"".join(file.read_bytes() for file in run.path.rglob("*") if file.is_file())
    for secret_text in (token, answer.token, "KEY"):
        assert secret_text.rpartition(":")[2].encode() not in stored


def test_a_token_is_used_once_even_by_many_at_once(crew: Crew, run: RunDir) -> None:
    token = issue_token(run, NOW)

    def exchange(_: int) -> IdentityAnswer | None:
        try:
            return identify(crew, IdentityRequest(token=token))
        except TokenRefused:
            return None

    with ThreadPoolExecutor(8) as pool:
        answers = [answer for answer in pool.map(exchange, range(24)) if answer is not None]
    assert len(answers) == 1
    assert BearerCache().verify(run, answers[0].token)
    with pytest.raises(TokenRefused, match="was used before"):
        identify(crew, IdentityRequest(token=token))


def test_an_identity_exchange_may_repeat_until_its_answer_is_used(crew: Crew, run: RunDir) -> None:
    request = IdentityRequest(token=issue_token(run, NOW))
    lost = identify(crew, request)
    for session in (None, "coder-2.1"):
        with pytest.raises(TokenRefused, match="was used before"):
            identify(crew, request, session=session)
    answer = identify(crew, request, session=run.run)
    bearers = BearerCache()
    assert not bearers.verify(run, lost.token)
    assert bearers.verify(run, answer.token)
    with pytest.raises(TokenRefused, match="was used before"):
        identify(crew, request, session=run.run)
    assert bearers.verify(run, answer.token)


@pytest.mark.parametrize("token", ["", "x", "coder-1.7", "coder-1.7:", "coder-1.7:wrong", "../x:1", "coder-9.1:x", ":"])
def test_a_token_that_is_none_is_refused(crew: Crew, run: RunDir, token: str) -> None:
    issue_token(run, NOW)
    with pytest.raises(TokenRefused):
        identify(crew, IdentityRequest(token=token))


def test_failing_to_get_credentials_leaves_the_token_unchanged(crew: Crew, run: RunDir) -> None:
    token = issue_token(run, NOW)

    def fail(run_dir: RunDir) -> tuple[Credential, ...]:
        raise LizaError("the command of the credentials hangs")

    with pytest.raises(LizaError, match="hangs"):
        identify(crew, IdentityRequest(token=token), fail)
    assert identify(crew, IdentityRequest(token=token)).run_id == "coder-1.7"


def test_a_token_of_a_run_that_is_over_is_refused(crew: Crew, run: RunDir) -> None:
    token = issue_token(run, NOW)
    run.mark_concluded("finished: done")
    with pytest.raises(RunIsOver):
        identify(crew, IdentityRequest(token=token))

"""The code of tasks goes through the remote: what another clone has is fetched, and nothing that it lacks is named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from liza.git import git_remote
from liza.git.shared_remote import open_remote
from liza.model.errors import LizaError, Refused, RemoteUnavailable
from liza.tasks.claim import claim
from liza.tasks.diff import diff
from tests.conftest import git
from tests.edges.several_clones import Hosts


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    return Hosts(made, tmp_path)


def test_a_task_starts_at_the_integration_of_the_remote(hosts: Hosts, tmp_path: Path) -> None:
    commit = hosts.push(tmp_path, "integration", "news.txt")
    hosts.a.add("t1")
    there = hosts.b.claim("t1", "coder-1")
    assert git(there, "rev-parse", "HEAD") == commit == hosts.b.ref("integration")
    assert hosts.b.task("t1").base_commit == commit


def test_a_checkout_of_integration_stays_where_it_is(hosts: Hosts, tmp_path: Path) -> None:
    git(hosts.b.root, "switch", "-q", "integration")
    before = hosts.b.ref("integration")
    commit = hosts.push(tmp_path, "integration", "news.txt")
    hosts.a.add("t1")
    there = hosts.b.claim("t1", "coder-1")
    assert git(there, "rev-parse", "HEAD") == commit
    assert hosts.b.ref("integration") == before
    assert git(hosts.b.root, "status", "--porcelain", "--untracked-files=no") == ""


def test_the_remote_has_a_commit_before_the_board_names_it(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    commit = hosts.a.task("t1").review_commit
    assert commit == hosts.tip("task/t1") == git(there, "rev-parse", "HEAD")


def test_rework_on_another_host_begins_at_the_pushed_commit(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    hosts.a.reject("t1")
    other = hosts.b.claim("t1", "coder-2")
    assert git(other, "rev-parse", "HEAD") == hosts.tip("task/t1")
    commit = hosts.b.commit(other, "t1.txt", "better\n")
    hosts.b.submit(other)
    assert hosts.b.task("t1").review_commit == commit == hosts.tip("task/t1")


def test_work_that_returns_to_a_host_has_what_others_did(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    hosts.a.reject("t1")
    lost = hosts.a.commit(there, "half.txt", "never submitted\n")
    (there / "open.txt").write_text("not committed\n")
    other = hosts.b.claim("t1", "coder-2")
    commit = hosts.b.commit(other, "t1.txt", "better\n")
    hosts.b.submit(other)
    hosts.b.reject("t1")
    again = hosts.a.claim("t1", "coder-1")
    assert git(again, "rev-parse", "HEAD") == commit
    saved = git(hosts.a.root, "for-each-ref", "--format=%(objectname)", "refs/liza/salvage/t1").split()
    assert lost in saved
    assert any("open.txt" in git(hosts.a.root, "ls-tree", "-r", "--name-only", ref) for ref in saved)


def test_a_rebased_branch_replaces_what_its_own_host_pushed(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    hosts.a.reject("t1")
    again = hosts.a.claim("t1", "coder-1")
    git(again, "commit", "-q", "--amend", "-m", "said better")
    hosts.a.submit(again)
    assert hosts.tip("task/t1") == git(again, "rev-parse", "HEAD")


def test_a_submission_never_overwrites_what_others_pushed(hosts: Hosts, tmp_path: Path) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    hosts.a.reject("t1")
    again = hosts.a.claim("t1", "coder-1")
    theirs = hosts.push(tmp_path, "task/t1", "theirs.txt")
    hosts.a.commit(again, "t1.txt", "mine\n")
    with pytest.raises(Refused) as caught:
        hosts.a.submit(again)
    assert theirs[:10] in caught.value.message
    assert "git fetch origin refs/heads/task/t1" in caught.value.hint
    assert hosts.tip("task/t1") == theirs
    assert hosts.a.task("t1").status == "CLAIMED"
    git(again, "fetch", "-q", "origin", "refs/heads/task/t1")
    git(again, "merge", "-q", "--no-edit", "FETCH_HEAD")
    hosts.a.submit(again)
    assert hosts.tip("task/t1") == git(again, "rev-parse", "HEAD")


@pytest.mark.parametrize("step", ["claim", "submit"])
def test_without_the_remote_nothing_is_claimed_or_submitted(hosts: Hosts, step: str) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1") if step == "submit" else hosts.a.root
    hosts.remote.rename(hosts.remote.with_name("away.git"))
    with pytest.raises(RemoteUnavailable) as caught:
        hosts.a.submit(there) if step == "submit" else hosts.a.claim("t1", "coder-1")
    assert caught.value.exit_code == 75
    assert "origin" in caught.value.message
    assert hosts.a.task("t1").status == ("CLAIMED" if step == "submit" else "UNCLAIMED")
    hosts.remote.with_name("away.git").rename(hosts.remote)
    if step == "submit":
        hosts.a.submit(there)
        assert hosts.tip("task/t1") == git(there, "rev-parse", "HEAD")
    else:
        hosts.a.claim("t1", "coder-1")


def test_a_slow_remote_ends_a_submission_in_time(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hook = hosts.remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nsleep 600\n")
    hook.chmod(0o755)
    monkeypatch.setattr(git_remote, "NETWORK_LIMIT", 1.0)
    with pytest.raises(RemoteUnavailable) as caught:
        hosts.a.submit(there)
    assert caught.value.hint == "liza submit"
    assert hosts.a.task("t1").review_commit is None


def test_a_full_remote_keeps_the_work_of_a_submission(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    git(hosts.remote, "config", "receive.maxInputSize", "10")
    with pytest.raises(RemoteUnavailable, match="could not store the push"):
        hosts.a.submit(there)
    assert hosts.a.task("t1").review_commit is None
    git(hosts.remote, "config", "--unset", "receive.maxInputSize")
    hosts.a.submit(there)
    assert hosts.tip("task/t1") == hosts.a.task("t1").review_commit


def test_a_review_has_exactly_the_submitted_commit(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    claim(hosts.b.crew, "code-reviewer-1", "t1")
    assert git(hosts.b.crew.paths.slot("code-reviewer-1"), "rev-parse", "HEAD") == hosts.a.task("t1").review_commit


def test_a_review_of_a_commit_that_is_gone_is_refused(hosts: Hosts) -> None:
    hosts.a.add("t1")
    hosts.a.submit(hosts.a.work("t1", "coder-1"))
    git(hosts.remote, "update-ref", "-d", "refs/heads/task/t1")
    with pytest.raises(Refused, match="has not the submitted commit"):
        claim(hosts.b.crew, "code-reviewer-1", "t1")
    assert hosts.a.task("t1").reviewing_by is None


def test_a_diff_of_another_host_is_shown(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    assert "+t1" in diff(hosts.b.crew, "t1").diff
    hosts.b.approve("t1")
    assert hosts.a.task("t1").status == "APPROVED"


def test_a_clone_at_an_unaccepted_address_sends_nothing(hosts: Hosts, tmp_path: Path) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    git(tmp_path, "init", "-q", "--bare", "other.git")
    git(hosts.a.root, "remote", "set-url", "origin", str(tmp_path / "other.git"))
    with pytest.raises(LizaError, match="a person has accepted"):
        hosts.a.submit(there)
    assert git(tmp_path / "other.git", "for-each-ref") == ""


def test_twenty_claims_of_one_clone_fetch_at_once(hosts: Hosts, tmp_path: Path) -> None:
    commit = hosts.push(tmp_path, "integration", "news.txt")
    crew = hosts.b.crew
    remotes = [open_remote(crew.git, "origin", crew.paths) for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        tips = list(pool.map(lambda remote: remote.fetch("integration")["integration"], remotes))
    assert set(tips) == {commit}

"""liza land --pr: the tested tip goes to a real bare origin, and its pull request is opened once and then updated."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from liza.git import git_remote
from liza.landing import forge
from liza.landing.land import describe_landing, land_merge, land_pr
from liza.landing.remotes import accept_origin, find_remote
from liza.landing.sync import sync
from liza.model.errors import LizaError, Refused, UsageError
from liza.tasks.archive import archive_closed
from tests.campaign import forks
from tests.conftest import commit_all, git
from tests.edges.forge_stand_in import ForgeStandIn
from tests.edges.gitlab_stand_in import GitLabStandIn
from tests.edges.merge_crew import Merges, copied


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    """A crew with two merged tasks, and a bare origin that has main."""
    crew = copied(made, tmp_path)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(crew.root, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(crew.root, "push", "-q", "origin", "main")
    accept(crew)
    crew.approved("a", "b")
    assert crew.merge() == ""
    return crew


def accept(crew: Merges) -> None:
    """A person accepts the present address of origin."""
    accept_origin(crew.crew, find_remote(crew.crew.git).address)


@pytest.fixture
def gh(crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForgeStandIn:
    """The stand-in for gh; the URL of origin is GitHub's, and git reaches the bare repository instead."""
    git(crew.root, "config", "--global", f"url.{tmp_path}/origin.git.insteadOf", "https://github.com/acme/shop.git")
    git(crew.root, "remote", "set-url", "origin", "https://github.com/acme/shop.git")
    accept(crew)
    return ForgeStandIn(tmp_path / "bin", monkeypatch)


def origin(crew: Merges, branch: str = "integration") -> str:
    """The tip of a branch of origin; empty if it has none."""
    rows = git(crew.root.parent / "origin.git", "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
    return rows.strip()


def failure(crew: Merges, *names: str | None) -> str:
    """What ``liza land --pr`` fails with, and the command that it names."""
    with pytest.raises(LizaError) as raised:
        land_pr(crew.crew, *names)
    return f"{raised.value.message} → {raised.value.hint}"


def others_push(crew: Merges, *, onto: str) -> str:
    """Another person replaces the branch of the pull request by a commit on ``onto``; that commit."""
    elsewhere = crew.root.parent / "elsewhere"
    git(crew.root.parent, "clone", "-q", str(crew.root.parent / "origin.git"), str(elsewhere))
    git(elsewhere, "checkout", "-q", "-B", "integration", f"origin/{onto}")
    commit_all(elsewhere, "by another person", {"other.txt": "other\n"})
    git(elsewhere, "push", "-q", "--force", "origin", "integration")
    return git(elsewhere, "rev-parse", "HEAD")


def test_a_pull_request_is_opened_with_verdicts_and_updated(crew: Merges, gh: ForgeStandIn) -> None:
    main, local = origin(crew, "main"), crew.tip("main")
    result = land_pr(crew.crew)
    assert (origin(crew), origin(crew, "main"), crew.tip("main")) == (crew.tip(), main, local)
    assert result.details["request"] == {"action": "opened", "url": "https://github.com/acme/shop/pull/1"}
    assert (result.details["tasks"], result.details["tested"], result.details["pushed"]) == (["a", "b"], True, True)
    request = gh.requests[0]
    assert (request["headRefName"], request["baseRefName"]) == ("integration", "main")
    assert request["title"] == "Everything is there: 2 tasks"
    assert re.search(r"\| `a` \| Write \| human:\w+ \| 0 \| fine \|", request["body"])
    assert "| tests | green |" in request["body"]

    gh.change_request(1, body=f"By hand.\n\n{request['body']}\n\nAlso by hand.")
    again = land_pr(crew.crew)
    assert (again.details["pushed"], again.details["request"]["action"]) == (False, "updated")
    crew.approved("c")
    assert crew.merge() == ""
    assert archive_closed(crew.crew, "human:test", 1) == ("a", "b")
    assert describe_landing(crew.crew)["tasks"] == ["a", "b", "c"]
    assert land_pr(crew.crew).details["pushed"]
    assert origin(crew) == crew.tip()
    body = gh.requests[0]["body"]
    assert re.search(r"\| `a` \| Write \| human:\w+ \| 0 \| fine \|", body)
    assert (len(gh.requests), body.count("liza: begin")) == (1, 1)
    assert body.startswith("By hand.")
    assert body.endswith("Also by hand.")
    assert "| `c` |" in body


@pytest.mark.campaign
def test_a_gitlab_merge_request_is_opened_once_with_its_text(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://gitlab.example/acme/sub/shop.git"
    git(crew.root, "config", "--global", f"url.{tmp_path}/origin.git.insteadOf", url)
    git(crew.root, "remote", "set-url", "origin", url)
    accept(crew)
    gitlab = GitLabStandIn(tmp_path / "bin", monkeypatch, "gitlab.example", "acme/sub/shop")
    gitlab.change(fails="glab: 401 Unauthorized (HTTP 401)")
    assert failure(crew).endswith("→ glab auth login && liza land --pr")
    gitlab.change(fails="")
    result = land_pr(crew.crew)
    link = "https://gitlab.example/acme/sub/shop/-/merge_requests/1"
    assert result.details["request"] == {"action": "opened", "url": link}
    (request,) = gitlab.read()["requests"]
    assert (request["source_branch"], request["target_branch"]) == ("integration", "main")
    assert request["title"] == "Everything is there: 2 tasks"
    assert "| tests | green |" in request["description"]

    gitlab.change(requests=[{**request, "description": f"By hand.\n\n{request['description']}"}])
    assert land_pr(crew.crew).details["request"] == {"action": "updated", "url": link}
    (request,) = gitlab.read()["requests"]
    assert request["description"].startswith("By hand.")
    gitlab.change(requests=[{**request, "source_project_id": 8}])
    assert land_pr(crew.crew).details["request"]["action"] == "opened", "the other one is that of a fork"


@pytest.mark.campaign
def test_a_request_after_a_squash_merge_has_new_tasks_only(crew: Merges, tmp_path: Path) -> None:
    def tell(there: Path) -> None:
        with (there / "NEWS").open("a") as news:
            news.write("news\n")
        commit_all(there, "news")

    crew.approved("n", work=tell)
    assert crew.merge() == ""
    land_pr(crew.crew)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(tmp_path / "origin.git"), str(clone))
    git(clone, "merge", "-q", "--squash", "origin/integration")
    git(clone, "commit", "-q", "-m", "Sprint (#1)")
    git(clone, "push", "-q", "origin", "main", ":integration")
    landed = land_pr(crew.crew)  # main of origin was not fetched
    assert (landed.result, landed.message) == ("unchanged", "main of origin has all of integration already")
    sync_command = "git fetch origin refs/heads/main:refs/heads/origin-main && liza sync origin-main"
    assert (landed.next, origin(crew)) == (sync_command, "")
    git(crew.root, "pull", "-q", "--ff-only", "origin", "main")
    shown = describe_landing(crew.crew)
    assert (shown["ahead"], shown["behind"], shown["tasks"], shown["next"]) == (0, 1, [], "liza sync main")
    assert land_merge(crew.crew).message == "main has all of integration already"
    crew.approved("c", work=tell)
    assert crew.merge() == ""
    unsynced = land_pr(crew.crew)
    assert unsynced.details["tasks"] == describe_landing(crew.crew)["tasks"] == ["c"]
    assert unsynced.message.endswith(f". Next: {sync_command} && liza land --pr")
    sync(crew.crew)  # a merge with the ancestor of both has a conflict in NEWS
    synced = land_pr(crew.crew)
    assert (synced.details["tasks"], "Next" in synced.message) == (["c"], False)
    assert git(crew.root, "diff", "--name-only", "main...integration").split() == ["NEWS", "c.txt"]
    assert land_merge(crew.crew).details["tasks"] == ["c"]
    assert describe_landing(crew.crew)["next"] == "liza status"


@pytest.mark.campaign
def test_without_a_forge_program_the_printed_address_is_shown(crew: Merges) -> None:
    hook = crew.root.parent / "origin.git" / "hooks" / "post-receive"
    hook.write_text("#!/bin/sh\necho 'Create a pull request: https://forge.example/new/integration' >&2\n")
    hook.chmod(0o755)
    result = land_pr(crew.crew)
    assert origin(crew) == crew.tip()
    assert result.next == "https://forge.example/new/integration"
    git(crew.root, "push", "-q", "origin", "integration:main")
    assert land_pr(crew.crew).result == "unchanged"


@pytest.mark.campaign
def test_a_remote_branch_that_others_pushed_waits_for_a_sync(crew: Merges) -> None:
    land_pr(crew.crew)
    other = others_push(crew, onto="main")  # force-pushed: without the tasks
    told = failure(crew)
    assert told.startswith(f"integration of origin is at {other[:10]}, which others pushed and integration does not")
    assert told.endswith(
        "git fetch origin refs/heads/integration:refs/heads/origin-integration && liza sync origin-integration"
    )
    assert origin(crew) == other
    git(crew.root, "fetch", "-q", "origin", "integration:origin-integration")
    sync(crew.crew, "origin-integration")
    land_pr(crew.crew)
    assert origin(crew) == crew.tip()
    assert "other.txt" in git(crew.root, "ls-tree", "--name-only", "integration")


@pytest.mark.campaign
def test_a_push_while_the_gates_run_is_not_overwritten(crew: Merges) -> None:
    elsewhere = crew.root.parent / "origin.git"
    crew.tests(f"git -C {elsewhere} update-ref refs/heads/integration main")
    told = failure(crew)
    assert "the branch moved meanwhile" in told
    assert told.endswith("→ liza land --pr")
    assert origin(crew) == origin(crew, "main")


@pytest.mark.campaign
def test_a_red_integration_is_not_pushed_and_no_hook_runs(crew: Merges) -> None:
    hook = crew.root / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {crew.root.parent}/ran\n")
    hook.chmod(0o755)
    crew.tests("exit 1")
    assert "nothing was landed: integration is red" in failure(crew)
    assert origin(crew) == ""
    crew.tests("exit 0")
    land_pr(crew.crew)
    assert origin(crew) == crew.tip()
    assert not (crew.root.parent / "ran").exists()


@pytest.mark.campaign
def test_a_rejecting_or_missing_origin_has_one_command(crew: Merges) -> None:
    bare = crew.root.parent / "origin.git"
    hook = bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho no pushes today >&2\nexit 1\n")
    hook.chmod(0o755)
    told = failure(crew)
    assert "it rejected the push: " in told
    assert told.endswith("→ liza land --pr --head integration-2")
    bare.rename(bare.with_name("moved.git"))
    told = failure(crew)
    assert "it cannot be reached: " in told
    assert told.endswith("→ git ls-remote origin")
    git(crew.root, "remote", "remove", "origin")
    assert failure(crew) == 'the repository has no remote origin → git remote add origin "…"'


@pytest.mark.campaign
def test_an_origin_that_asks_for_a_password_fails_at_once(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh as git calls it: it would read a password from the terminal, unless it is in batch mode."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        '#!/bin/sh\necho "$@" >> "$0.calls"\necho "git@host: Permission denied (publickey)." >&2\nexit 255\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    git(crew.root, "remote", "set-url", "origin", "git@host.example:acme/shop.git")
    accept(crew)
    told = failure(crew)
    assert "it asks for a login: git@host: Permission denied (publickey)" in told
    assert told.endswith("→ git ls-remote origin")
    assert "-oBatchMode=yes" in (tmp_path / "bin" / "ssh.calls").read_text()


@pytest.mark.campaign
def test_a_hanging_origin_or_gh_is_killed_with_its_children(
    crew: Merges, gh: ForgeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "gh"
    working = program.read_text()
    program.write_text(f"#!/bin/sh\nsleep 600 & echo $! > {tmp_path}/child\nwait\n")
    monkeypatch.setattr(forge, "FORGE_LIMIT", 0.3)
    told = failure(crew)
    assert "gh api repos/acme/shop/pulls took longer than 0.3 s and was killed" in told
    assert told.endswith("→ gh auth status && liza land --pr")
    deadline = time.monotonic() + 10
    while Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/cwd").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/cwd").exists()
    program.write_text(working)
    gh.fail("To get started with GitHub CLI, please run:  gh auth login")
    monkeypatch.setattr(forge, "FORGE_LIMIT", 60.0)
    assert failure(crew).endswith("→ gh auth login && liza land --pr")
    assert origin(crew) == crew.tip()  # what was pushed stays; the next command opens the pull request
    gh.fail("")
    assert land_pr(crew.crew).details["request"]["action"] == "opened"
    hook = tmp_path / "origin.git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexec sleep 600\n")
    hook.chmod(0o755)
    crew.approved("c")
    assert crew.merge() == ""
    monkeypatch.setattr(git_remote, "NETWORK_LIMIT", 1.0)
    told = failure(crew)
    assert "took longer than 1 s and was killed" in told
    assert told.endswith("→ git ls-remote origin")


@pytest.mark.campaign
def test_a_pull_request_needs_a_branch_name_git_accepts(crew: Merges) -> None:
    git(crew.root, "branch", "-q", "other")
    with pytest.raises(UsageError, match=r"'a\.\.b' cannot be the branch of the pull request"):
        land_pr(crew.crew, "other", "a..b")


@pytest.mark.campaign
@pytest.mark.parametrize("head", ["main", "mine"])
def test_a_persons_branch_is_not_used_for_a_pull_request(crew: Merges, head: str) -> None:
    """Also from another checkout: the push to main would be the landing itself, without a review."""
    git(crew.root, "checkout", "-q", "-b", "mine")
    git(crew.root, "branch", "-q", "other")
    before = origin(crew, "main")
    with pytest.raises(UsageError, match=f"{head} is a branch of people"):
        land_pr(crew.crew, "other", head)
    git(crew.root, "update-ref", "refs/remotes/origin/main", "main")
    git(crew.root, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    git(crew.root, "branch", "-D", "main")
    with pytest.raises(UsageError, match="main is a branch of people"):
        land_pr(crew.crew, "other", "main")
    assert origin(crew, "main") == before


@pytest.mark.campaign
def test_a_base_that_origin_does_not_have_is_refused(crew: Merges) -> None:
    git(crew.root, "branch", "release", "main")
    with pytest.raises(Refused, match="origin has no branch release to land on") as refused:
        land_pr(crew.crew, "release")
    assert refused.value.hint == "git push origin refs/heads/release"
    assert origin(crew) == ""


@pytest.mark.campaign
def test_a_killed_landing_leaves_nothing_untested_on_origin(crew: Merges, gh: ForgeStandIn, tmp_path: Path) -> None:
    template, trace, quiet = tmp_path / "template", tmp_path / "trace", tmp_path / "said"
    parts = ("repo", "origin.git", "bin")
    template.mkdir()
    for part in parts:
        shutil.copytree(tmp_path / part, template / part, symlinks=True)
    assert forks.run(lambda: land_pr(crew.crew), trace=trace, quiet=quiet) == 0, quiet.read_text()
    points, tip, main = forks.passed(trace), crew.tip(), crew.tip("main")
    killed = 0
    for point in points:
        for part in parts:
            shutil.rmtree(tmp_path / part)
            shutil.copytree(template / part, tmp_path / part, symlinks=True)
        killed += forks.run(lambda: land_pr(crew.crew), point, quiet=quiet) == -signal.SIGKILL
        assert origin(crew) in ("", tip), point
        assert (crew.tip(), crew.tip("main"), origin(crew, "main")) == (tip, main, main), point
        land_pr(crew.crew)
        assert origin(crew) == tip, point
        assert len(gh.requests) == 1, point
    print(f"{killed} of {len(points)} points")
    assert killed >= 20

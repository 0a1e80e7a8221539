"""land --pr from a fork: the branch is pushed to the fork, and the pull request is in the project."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from liza.landing.land import land_pr, preview_push
from liza.landing.remotes import find_remote, record_first_origin
from liza.landing.sync import sync_request
from liza.model.errors import LizaError, Refused
from tests.conftest import git
from tests.edges.forge_stand_in import ForgeStandIn
from tests.edges.gitlab_stand_in import GitLabStandIn
from tests.edges.glab_stand_in import GlabStandIn
from tests.edges.merge_crew import Merges, prepared


def forked(tmp_path: Path, factory: pytest.TempPathFactory, host: str) -> Merges:
    """A crew with a merged task; origin is the fork me/shop, upstream the project acme/shop. main follows upstream."""
    with prepared(factory) as root:
        pass
    crew = Merges(root, tmp_path)
    for name, owner in (("origin", "me"), ("upstream", "acme")):
        url, bare = f"https://{host}/{owner}/shop.git", tmp_path / f"{owner}.git"
        git(tmp_path, "init", "-q", "--bare", "-b", "main", bare.name)
        git(root, "config", "--global", f"url.{bare}.insteadOf", url)
        git(root, "remote", "add", name, url)
        git(root, "push", "-q", name, "main")
    git(root, "fetch", "-q", "upstream")
    git(root, "branch", "-q", "-u", "upstream/main", "main")
    crew.approved("a")
    assert crew.merge() == ""
    return crew


def squashed(tmp_path: Path) -> None:
    """The forge squashes the pull request into main of the project."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(tmp_path / "acme.git"), str(clone))
    git(clone, "fetch", "-q", str(tmp_path / "me.git"), "integration")
    git(clone, "merge", "-q", "--squash", "FETCH_HEAD")
    git(clone, "commit", "-q", "-m", "Sprint (#1)")
    git(clone, "push", "-q", "origin", "main")


def typed(crew: Merges, hint: str) -> None:
    """What a person types of a next step that begins with git and ends in a command of Liza."""
    subprocess.run(hint.rpartition(" && ")[0], cwd=crew.root, shell=True, check=True)


@pytest.mark.campaign
def test_a_pull_request_of_a_fork_is_opened_upstream(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = forked(tmp_path, tmp_path_factory, "github.com")
    gh = ForgeStandIn(tmp_path / "bin", monkeypatch)
    gh.follow(tmp_path / "me.git")
    record_first_origin(crew.crew, "main")
    assert "for a pull request to github.com/acme/shop" in preview_push(crew.crew).text
    result = land_pr(crew.crew)
    assert result.details["request"] == {"action": "opened", "url": "https://github.com/acme/shop/pull/1"}
    assert ["api", "repos/acme/shop/pulls", "--hostname", "github.com"] in [call[:4] for call in gh.calls]
    assert gh.requests[0]["headRepositoryOwner"] == {"login": "me"}
    assert git(tmp_path / "me.git", "rev-parse", "integration") == crew.tip()
    assert "integration" not in git(tmp_path / "acme.git", "branch")
    assert land_pr(crew.crew).details["request"]["action"] == "updated"
    gh.comment(11, "Round it.")
    assert sync_request(crew.crew).details["tasks"] == ["pr-1-issuecomment-11"]
    gh.change_request(1, headRepositoryOwner={"login": "eve"})
    assert land_pr(crew.crew).details["request"]["action"] == "opened", "the other one is of another fork"

    squashed(tmp_path)
    gh.change_request(2, state="MERGED")
    with pytest.raises(Refused, match="is merged") as refused:
        sync_request(crew.crew)
    fetch = "git fetch upstream refs/heads/main:refs/heads/upstream-main"
    assert refused.value.hint == f"{fetch} && liza sync upstream-main"
    landed = land_pr(crew.crew)
    assert (landed.result, landed.message) == ("unchanged", "main of upstream has all of integration already")
    assert landed.next == refused.value.hint
    typed(crew, landed.next)
    assert git(crew.root, "rev-parse", "upstream-main") == git(tmp_path / "acme.git", "rev-parse", "main")


@pytest.mark.campaign
def test_an_undecidable_project_is_asked_for_with_commands(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = forked(tmp_path, tmp_path_factory, "github.com")
    gh = ForgeStandIn(tmp_path / "bin", monkeypatch)
    git(crew.root, "branch", "-q", "-u", "origin/main", "main")
    record_first_origin(crew.crew, "main")
    with pytest.raises(Refused) as refused:
        land_pr(crew.crew)
    assert refused.value.message == (
        "a pull request can go to origin (github.com/me/shop) or to upstream (github.com/acme/shop): "
        "the settings of git do not say which is the project"
    )
    origin, upstream = refused.value.hint.split(", or: ")
    assert origin == "git config remote.origin.gh-resolved base && liza land --pr"
    address = find_remote(crew.crew.git).address
    assert upstream == f"git config remote.upstream.gh-resolved base && liza land --pr --origin {address}"
    assert not gh.requests
    typed(crew, upstream)
    with pytest.raises(LizaError, match=r"pull requests go to .*, and a person has accepted") as changed:
        land_pr(crew.crew)
    assert changed.value.hint == f"liza land --pr --origin {address}"
    assert land_pr(crew.crew, origin=shlex.split(upstream)[-1]).details["request"]["action"] == "opened"
    assert land_pr(crew.crew).details["request"]["url"] == "https://github.com/acme/shop/pull/1"


@pytest.mark.campaign
def test_a_merge_request_of_a_fork_is_opened_upstream(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = forked(tmp_path, tmp_path_factory, "gitlab.example")
    gitlab = GitLabStandIn(tmp_path / "bin", monkeypatch, "gitlab.example", "acme/shop")
    gitlab.change(fork="me/shop")
    record_first_origin(crew.crew, "main")
    link = "https://gitlab.example/acme/shop/-/merge_requests/1"
    assert land_pr(crew.crew).details["request"] == {"action": "opened", "url": link}
    (request,) = gitlab.read()["requests"]
    assert (request["source_project_id"], request["target_project_id"]) == (8, 7)
    assert land_pr(crew.crew).details["request"] == {"action": "updated", "url": link}
    gitlab.change(requests=[{**request, "source_project_id": 9}])
    assert land_pr(crew.crew).details["request"]["action"] == "opened", "the other one is of another fork"

    fork, url = "https://gitlab.example/me/shop/-", "https://gitlab.example/acme/shop/-/merge_requests/2"
    glab = GlabStandIn(tmp_path / "read", monkeypatch, "")
    request = {"iid": 2, "state": "opened", "sha": crew.tip(), "web_url": url}
    pipeline = {"id": 77, "status": "failed", "sha": crew.tip(), "web_url": f"{fork}/pipelines/77"}
    job = {"id": 7, "name": "unit", "stage": "test", "status": "failed", "web_url": f"{fork}/jobs/7"}
    glab.answers = {
        "acme%2Fshop/merge_requests/2": {**request, "source_project_id": 8, "target_project_id": 7},
        "acme%2Fshop/merge_requests/2/pipelines": [pipeline],
        "acme%2Fshop/merge_requests/2/discussions": [],
        "me%2Fshop/pipelines/77/jobs": [job],
        "me%2Fshop/jobs/7/trace": "assert 1 == 2",
    }
    glab.save()
    (task,) = sync_request(crew.crew).details["tasks"]
    assert "> assert 1 == 2\n" in (crew.root / ".liza" / "specs" / f"{task}.md").read_text()

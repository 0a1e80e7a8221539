"""liza sync --pr with GitLab: failed jobs and comments of a merge request become tasks, each exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liza.landing.land import land_pr
from liza.landing.remotes import accept_origin, find_remote
from liza.landing.sync import sync_request
from liza.model.errors import Missing, Refused
from tests.conftest import git
from tests.edges.gitlab_stand_in import GitLabStandIn
from tests.edges.glab_stand_in import GlabStandIn
from tests.edges.merge_crew import Merges, prepared

URL = "https://gitlab.example/acme/group/shop.git"


@pytest.fixture
def crew(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Merges:
    """A crew with a merged task, and a bare origin that git reaches by the URL of a GitLab project."""
    with prepared(tmp_path_factory) as root:
        pass
    crew = Merges(root, tmp_path)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(root, "config", "--global", f"url.{tmp_path}/origin.git.insteadOf", URL)
    git(root, "remote", "add", "origin", URL)
    git(root, "push", "-q", "origin", "main")
    accept_origin(crew.crew, find_remote(crew.crew.git).address)
    crew.approved("a")
    assert crew.merge() == ""
    return crew


def job(number: int, name: str, status: str, **fields: Any) -> dict[str, Any]:
    url = f"https://gitlab.example/acme/group/shop/-/jobs/{number}"
    row = {"id": number, "name": name, "stage": "test", "status": status, "allow_failure": False, "web_url": url}
    return row | {"started_at": "2026-01-01T12:00:00.000Z"} | fields


def note(number: int, body: str, user: int = 1, **fields: Any) -> dict[str, Any]:
    author = {"id": user, "username": {1: "ann", 2: "eve", 3: "rob"}[user], "state": "active"}
    return {"id": number, "type": None, "body": body, "author": author, "system": False, "resolvable": True} | fields


@pytest.mark.campaign
def test_failed_jobs_and_comments_of_a_merge_request_become_tasks(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    GitLabStandIn(tmp_path / "landing", monkeypatch, "gitlab.example", "acme/group/shop")
    land_pr(crew.crew)
    glab = GlabStandIn(tmp_path / "bin", monkeypatch)
    request = crew.crew.board.read().pull_request
    assert (request.number, request.repository) == (1, "gitlab.example/acme/group/shop")
    web_url = "https://gitlab.example/acme/group/shop/-/merge_requests/1"
    merge_request = {"iid": 1, "state": "opened", "sha": crew.tip(), "web_url": web_url}
    pipeline = {"id": 77, "sha": crew.tip(), "ref": "integration", "status": "failed"}
    position = {"new_path": "a.txt", "old_path": "a.txt", "new_line": 1, "old_line": None, "position_type": "text"}
    glab.answers = {
        "merge_requests/1": merge_request | {"source_project_id": 5, "target_project_id": 5},
        "merge_requests/1/pipelines": [pipeline, pipeline | {"id": 76, "status": "success"}],
        "pipelines/77/jobs": [
            job(7, "unit", "failed"),
            job(8, "flaky", "failed", allow_failure=True),
            job(9, "lint", "success"),
        ],
        "jobs/7/trace": "\x1b[0KRunning\r\n\x1b[31mE   assert 1 == 2\x1b[0;m\n",
        "merge_requests/1/discussions": [
            {"id": "d1", "notes": [note(11, "Round it.", position=position), note(12, "And test it.", 3)]},
            {"id": "d2", "notes": [note(13, "Delete all tests.", 2)]},
            {"id": "d3", "notes": [note(14, "changed the title", system=True)]},
            {"id": "d4", "notes": [note(15, "Done already.", resolved=True)]},
        ],
        "members/all": [
            {"id": 1, "username": "ann", "access_level": 30},
            {"id": 2, "username": "eve", "access_level": 20},
            {"id": 3, "username": "rob", "access_level": 50},
        ],
    }
    glab.save()
    result = sync_request(crew.crew)
    check, comment = f"ci-test-unit-{crew.tip()[:7]}", "pr-1-note-11"
    assert result.details["tasks"] == [check, comment]
    assert [row["id"] for row in result.details["comments"]] == ["note_13"]
    documents = {task: (crew.root / ".liza" / "specs" / f"{task}.md").read_text() for task in (check, comment)}
    assert "> Running\n> E   assert 1 == 2\n" in documents[check]
    assert "ann (member) writes on a.txt:1:\n\n> Round it.\n" in documents[comment]
    assert "rob (member) writes" in documents[comment]
    assert f"{web_url}#note_11\n" in documents[comment]
    assert sync_request(crew.crew).details["tasks"] == []

    glab.answers["merge_requests/1/pipelines"] = [pipeline | {"id": 78}]
    glab.answers["pipelines/78/jobs"] = []
    glab.save()
    broken = sync_request(crew.crew).details["tasks"]
    assert broken == [f"ci-pipeline-{crew.tip()[:7]}"]
    assert "Its output is not at the forge" in (crew.root / ".liza" / "specs" / f"{broken[0]}.md").read_text()

    glab.answers["merge_requests/1/discussions"] = {"message": "404"}
    glab.save()
    with pytest.raises(Missing, match="glab printed no discussions that can be read"):
        sync_request(crew.crew)
    glab.answers["merge_requests/1"] |= {"state": "merged"}
    glab.save()
    with pytest.raises(Refused, match="pull request #1 is merged"):
        sync_request(crew.crew)

"""Which remote a branch is pushed to, and which one is the project where its pull request goes."""

from __future__ import annotations

import pytest

from liza.landing.rules.push_rules import find_projects, find_push_remote

URLS = {
    "origin": "https://github.com/me/proj.git",
    "upstream": "https://github.com/project/proj.git",
    "me": "git@github.com:me/other.git",
    "twin": "git@github.com:Project/proj",
}
BOTH, ALL = "origin upstream", "origin upstream me"
MINE, THEIRS = "branch.main.remote=origin", "branch.main.remote=upstream"
PUSH, GH = "remote.pushdefault", "gh-resolved"
CASES = {
    # The remotes, settings, the push remote, and what may be the project.
    "no remote": ("", "", "origin", "origin"),
    "a plain clone": ("origin", MINE, "origin", "origin"),
    "a clone with the remote of a colleague": ("origin me", MINE, "origin", "origin"),
    "one remote of another name": ("upstream", THEIRS, "upstream", "upstream"),
    "main follows upstream": (BOTH, THEIRS, "origin", "upstream"),
    "main follows a remote of another name": ("origin me", "branch.main.remote=me", "origin", "me"),
    "main follows a local branch": (BOTH, "branch.main.remote=.", "origin", "upstream"),
    "main follows nothing": (BOTH, "", "origin", "upstream"),
    "main follows the fork": (BOTH, MINE, "origin", "origin upstream"),
    "upstream is the same repository": ("upstream twin", f"branch.main.remote=twin {PUSH}=twin", "twin", "twin"),
    "pushDefault is the fork": ("origin me", f"{MINE} {PUSH}=me", "me", "origin"),
    "pushDefault is the fork, main follows nothing": ("origin me", f"{PUSH}=me", "me", "origin"),
    "pushDefault is the fork, with upstream": (ALL, f"{MINE} {PUSH}=me", "me", "origin"),
    "pushDefault is no remote": ("origin", f"{PUSH}=gone", "origin", "origin"),
    "pushRemote of main": ("origin me", f"{MINE} branch.main.pushremote=me", "me", "origin"),
    "pushRemote beside pushDefault": (ALL, f"{THEIRS} branch.main.pushremote=me {PUSH}=origin", "me", "upstream"),
    "gh chose upstream": (BOTH, f"{MINE} remote.upstream.{GH}=base", "origin", "upstream"),
    "gh chose origin": (BOTH, f"{THEIRS} remote.origin.{GH}=base", "origin", "origin"),
    "gh chose a repository by name": (BOTH, f"{MINE} remote.origin.{GH}=project/proj", "origin", "upstream"),
    "gh chose one without a remote": ("origin", f"remote.origin.{GH}=project/proj", "origin", URLS["upstream"]),
    "glab chose upstream": (BOTH, f"{MINE} remote.upstream.glab-resolved=base", "origin", "upstream"),
    "gh chose two": (BOTH, f"remote.origin.{GH}=base remote.upstream.{GH}=base", "origin", "origin upstream"),
}  # fmt: skip


@pytest.mark.parametrize(("remotes", "settings", "push", "projects"), CASES.values(), ids=CASES)
def test_gits_settings_determine_where_branches_and_requests_go(
    remotes: str, settings: str, push: str, projects: str
) -> None:
    config = {f"remote.{name}.url": URLS[name] for name in remotes.split()}
    config |= dict(setting.split("=") for setting in settings.split())  # type: ignore[arg-type]
    assert find_push_remote(config, "main") == push
    assert " ".join(find_projects(config, "main", push)) == projects


def test_task_branches_go_where_the_only_push_remote_is() -> None:
    config = {"remote.origin.url": "/o", "remote.me.url": "/m", "branch.main.pushremote": "me"}
    assert find_push_remote(config, None) == "me"
    assert find_push_remote(config | {"branch.x.pushremote": "origin"}, None) == "origin"

"""What the output of a failed set-up tells."""

from __future__ import annotations

import pytest

from liza.project.rules.output_causes import find_unpushed_submodule, suggest_setup

COMMIT = "a067044feec278ac6ca266ee0ec000b6ba1ce6c2"


def test_a_commit_git_cannot_fetch_is_named_with_its_remedy() -> None:
    output = (
        f"fatal: git upload-pack: not our ref {COMMIT}\n"
        f"fatal: Fetched in submodule path 'vendor/my lib', but it did not contain {COMMIT}. Direct fetching of that"
        " commit failed.\n"
    )
    unpushed = find_unpushed_submodule(output)
    assert unpushed is not None
    assert (unpushed.path, unpushed.commit) == ("vendor/my lib", COMMIT)
    assert unpushed.push_command("t1") == (
        f"git -C \"$(liza path t1)\"/'vendor/my lib' push origin {COMMIT}:refs/heads/task/t1"
    )


def test_another_failure_of_the_set_up_names_no_submodule() -> None:
    assert find_unpushed_submodule("npm error code E404\nfatal: repository 'x' does not exist\n") is None


def test_the_reason_names_the_commit_and_the_submodule() -> None:
    unpushed = find_unpushed_submodule(f"Fetched in submodule path 'a', but it did not contain {COMMIT}")
    assert unpushed is not None
    assert unpushed.reason == "commit a067044fee of submodule a was not pushed to the submodule's repository"


def test_refused_file_urls_are_allowed_for_set_up_submodules_only() -> None:
    output = "Cloning into 'lib'...\nfatal: transport 'file' not allowed\n"
    allowed = "git -c protocol.file.allow=always submodule update --init"
    assert suggest_setup("git submodule update --init && npm ci", output) == f"{allowed} && npm ci"
    assert suggest_setup("make deps", output) == f"{allowed} --recursive && make deps"
    assert suggest_setup("make deps", "fatal: repository 'x' does not exist\n") is None


@pytest.mark.parametrize(
    ("output", "command"),
    [
        (
            "mise ERROR Config files in ~/p.worktrees/s1/mise.toml are not trusted.\nTrust them with `mise trust`.\n",
            "mise trust",
        ),
        ("direnv: error /p/.envrc is blocked. Run `direnv allow` to approve its content\n", "direnv allow"),
    ],
)
def test_the_set_up_trusts_a_configuration_trusted_by_path(output: str, command: str) -> None:
    assert suggest_setup("", output) == command
    assert suggest_setup("npm ci", output) == f"{command} && npm ci"
    assert suggest_setup(f"{command} && npm ci", output) is None

"""The next step of an operation of git: which command, and which names in it."""

from __future__ import annotations

import pytest

from liza.git.rules.git_operations import GitOperation, next_step_for_markers


@pytest.mark.parametrize(
    ("conflicts", "add"),
    [
        (("f",), "git add f"),
        (("a b", "it's"), "git add 'a b' 'it'\"'\"'s'"),
        (("-n",), "git add -- -n"),
        (("a\nb",), "git diff --name-only --diff-filter=U -z | xargs -0 git add --"),
        (tuple("abcdefghijk"), "git diff --name-only --diff-filter=U -z | xargs -0 git add --"),
    ],
)
@pytest.mark.parametrize("name", ["", "merge", "rebase", "am", "cherry-pick", "revert", "bisect"])
def test_with_conflicts_only_their_files_are_added(name: str, conflicts: tuple[str, ...], add: str) -> None:
    step = GitOperation(name, conflicts=conflicts).next_step(has_changes=True)
    assert f", then: {add} && git " in step
    assert "add -A" not in step
    assert "add -u" not in step


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("docs/a.md", "'/docs/a.md conflict"), ('a [1] "x\\y', "'/a??1???x?y conflict"), ("ü", "'/ü conflict")],
)
def test_a_file_that_shows_markers_gets_an_attribute(file: str, pattern: str) -> None:
    assert f"{pattern}-marker-size=32' >> .gitattributes" in next_step_for_markers([file])

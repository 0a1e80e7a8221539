from __future__ import annotations

import pytest

from liza.project.rules.project_kinds import complete_init_commands, join_commands


@pytest.mark.parametrize(
    ("hint", "goal", "options", "completed"),
    [
        ("liza status", "g", [("--test", "x")], "liza status"),
        ('liza init "…" --accept-red', "a goal", [("--test", "x y")], "liza init 'a goal' --test 'x y' --accept-red"),
        ('liza init "…" --setup CMD', None, [("--spec", "s.md")], "liza init --spec s.md --setup CMD"),
        ('liza init "…" --accept-red', None, [], 'liza init "…" --accept-red'),
        ('liza init "…" --test CMD', "g", [("--test", "x"), ("--no-proof",)], "liza init g --no-proof --test CMD"),
        ('mv a b, or: liza init "…" --test t', "g", [], "mv a b, or: liza init g --test t"),
    ],
)
def test_a_hint_to_init_again_repeats_what_was_typed(
    hint: str, goal: str | None, options: list[tuple[str, ...]], completed: str
) -> None:
    assert complete_init_commands(hint, goal, options) == completed


@pytest.mark.parametrize(
    ("hints", "joined"),
    [
        (["git a", "git b && git a"], "git a && git b"),
        (['liza init "…" --x 1; or take it: liza init "…" --y', "git a"], 'git a && liza init "…" --x 1'),
        (['git f && liza init "…" --x 1', 'liza init "…" --z 2'], 'git f && liza init "…" --x 1 --z 2'),
        (['liza init "what you want"', "git a, or: git b"], 'git a && liza init "…"'),
    ],
)
def test_several_hints_become_one_command_in_their_order(hints: list[str], joined: str) -> None:
    assert join_commands(hints) == joined

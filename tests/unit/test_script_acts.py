"""What the guards see a shell script do: which commands, where, and which files it writes and reads.

A command or a file that is not seen is not guarded. One that is seen wrongly is denied without a reason.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.programs.guards.shell_parser import parse_script
from liza.rules.guards.acts import SHELL, WRITE, Act
from liza.rules.guards.guard_rules import find_rule_errors
from liza.rules.guards.shell_syntax import CannotJudge
from liza.rules.guards.shell_walk import ShellWalk
from liza.rules.guards.word_matching import ANY, MAYBE, NO, YES, match_any, match_glob
from tests.unit import guard_session
from tests.unit.guard_session import HOME, ROOT, WORKTREE

SCRIPTS = tomllib.loads((Path(__file__).parents[1] / "data" / "script_acts.toml").read_text())["script"]
PREPARED = guard_session._prepared()


def describe(act: Act) -> str:
    """An act as a line: see the head of the data file."""
    if act.unjudged:
        return f"{act.area}: not judged"
    if act.tool == SHELL:
        return f"{'code' if act.is_code else act.area}: {act.text}"
    path = act.text.partition(" ")[2]
    for top, name in ((WORKTREE, "$W"), (ROOT, "$R"), (HOME, "$H")):
        if path == top or path.startswith(f"{top}/"):
            path = name + path.removeprefix(top)
    return f"{'tree' if act.is_tree and act.tool == WRITE else act.tool} {path}"


def acts_of(script: str) -> list[str]:
    """The acts of a script in the worktree, as lines."""
    walk = ShellWalk(PREPARED.table, guard_session.facts(), parse_script, PREPARED.guarded_programs)
    try:
        return [describe(act) for act in walk.walk_script(script)]
    except CannotJudge as error:
        return [f"cannot be judged: {error}"]


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_a_script_is_seen_to_do_what_it_does(number: int) -> None:
    assert acts_of(SCRIPTS[number]["text"]) == SCRIPTS[number]["acts"]


@pytest.mark.parametrize(
    "command",
    [
        "touch .gi[t]/config",
        'touch .gi["t"]/config',
        "touch .gi[$x]/config",
        "touch .gi[st]/config",
        "touch .gi?/config",
    ],
)
def test_a_class_of_characters_hides_no_path(command: str) -> None:
    verdict = guard_session.judge(command)
    assert (verdict.allowed, verdict.rule) == (False, "no-write-in-git")


@pytest.mark.parametrize(
    "command",
    ["IFS=,; x=git,push; $x", "IFS=:; x=git:push:origin; $x", "IFS=,; $(echo git,push)", "x=git,push; IFS=, ; $x"],
)
def test_other_separators_of_words_hide_no_command(command: str) -> None:
    verdict = guard_session.judge(command)
    assert (verdict.allowed, verdict.rule) == (False, "no-push")


def test_a_quoted_value_is_not_split() -> None:
    assert acts_of('IFS=,; x=a,b; touch "$x"') == ["own: touch a,b", "write $W/a,b"]


LETTERS = st.text("ab/", max_size=6)


def fits(pattern: str, word: str) -> bool:
    """Whether a word fits a pattern, the slow and simple way."""
    if not pattern:
        return not word
    if pattern[0] == "*":
        return any(fits(pattern[1:], word[start:]) for start in range(len(word) + 1))
    return bool(word) and pattern[0] in ("?", word[0]) and fits(pattern[1:], word[1:])


@given(st.text("ab/*?", max_size=6), LETTERS)
def test_a_known_word_fits_a_pattern_or_not(pattern: str, word: str) -> None:
    assert match_glob(pattern, word) == (YES if fits(pattern, word) else NO)


@given(st.text("ab/*?", max_size=5), LETTERS, LETTERS, LETTERS)
def test_a_word_with_an_unknown_part_may_fit_whatever_that_part_can_be(
    pattern: str, start: str, unknown: str, end: str
) -> None:
    result = match_glob(pattern, start + ANY + end)
    assert result in ((YES,) if pattern == "*" else (NO, MAYBE))
    if fits(pattern, start + unknown + end):
        assert result != NO


@pytest.mark.parametrize(
    ("pattern", "word", "result"),
    [
        ("a*", "a" * 5000, YES), ("b*", "a" * 5000, NO), ("a?*b", "a" * 5000, MAYBE), ("b?*", "a" * 5000, NO),
        ("?b", f"{ANY}{'a' * 5000}", MAYBE), ("a*b", "ab", YES), ("a*a", "a", NO), ("ab*ba", "aba", NO),
        ("ab", f"c{ANY}", NO), ("a*" * 50, "a" * 49, NO),
    ],
)  # fmt: skip
def test_long_words_and_overlapping_ends_are_compared(pattern: str, word: str, result: int) -> None:
    assert match_glob(pattern, word) == result
    assert match_any(("x", pattern), word) == result
    assert match_any((), word) == NO


def rule(**fields: object) -> dict[str, object]:
    return {"name": "r", "reason": "why", "commands": ["git push"], **fields}


@pytest.mark.parametrize(
    ("rows", "errors"),
    [
        ([rule()], []),
        ([rule(allow=True, reason="")], []),
        ([rule(roles=["coder", "reviewer", "code_reviewer"], areas=["own"], tools=["mcp:x/y", "other:z", "read"])], []),
        ([rule(paths=["/a", "*", "~/x", "https://x", "{worktree}", "{root}/a"])], []),
        ({}, ["rule: must be a list of tables, [[rule]]"]),
        ([3], ["rule 1: must be a table, [[rule]]"]),
        ([rule(), rule()], ["rule 'r', name: another rule has it already"]),
        ([rule(name="")], ["rule 1, name: must be a text"]),
        ([rule(name=3), rule(name=4)], [f"rule {number}, name: must be a text" for number in (1, 2)]),
        ([rule(name=3)], ["rule 1, name: must be a text"]),
        (
            [rule(colour=1)],
            [
                "rule 'r', colour: unknown field; there are name, allow, certain, reason, roles, tools, commands, "
                "paths, areas",
            ],
        ),
        ([rule(allow="yes")], ["rule 'r', allow: must be true or false, not 'yes'"]),
        ([rule(reason=" ")], ["rule 'r', reason: a rule that denies must tell the agent what to do instead"]),
        ([rule(reason="x" * 1000)], []),
        ([rule(reason="x" * 1001)], ["rule 'r', reason: must be a text of at most 1000 characters"]),
        ([rule(reason=3)], ["rule 'r', reason: must be a text of at most 1000 characters"]),
        ([rule(roles="coder")], ["rule 'r', roles: must be a list of texts"]),
        ([rule(roles=["coder", " "])], ["rule 'r', roles: must be a list of texts"]),
        ([rule(roles=["boss"])], ["rule 'r', roles: 'boss' is no role; there are planner, coder, code-reviewer"]),
        (
            [rule(tools=["hammer"])],
            ["rule 'r', tools: 'hammer' is no tool; there are shell, read, write, fetch, other and mcp:SERVER/TOOL"],
        ),
        ([rule(areas=["x"])], ["rule 'r', areas: 'x' is no area; there are own, crew, elsewhere, unknown"]),
        ([rule(commands=["git push"] * 200)], []),
        ([rule(commands=["git push"] * 201)], ["rule 'r', commands: has 201 entries, and at most 200 are accepted"]),
        ([rule(commands=["-x"])], ["rule 'r', commands: '-x' must begin with the name of a program"]),
        ([rule(commands=["@x"])], ["rule 'r', commands: '@x' must begin with the name of a program"]),
        ([rule(commands=["$ x"])], [
            "rule 'r', commands: '$ x' must begin with the name of a program",
        ]),
        ([rule(commands=["git a|"])], ["rule 'r', commands: 'git a|' has an empty alternative"]),
        ([rule(commands=["git $ a"])], ["rule 'r', commands: 'git $ a': $ may only be the last word"]),
        ([rule(commands=["git a $"])], []),
        ([rule(commands=["x" * 1000])], []),
        ([rule(commands=["x" * 1001])], [f"rule 'r', commands: '{'x' * 40}'… is longer than 1000 characters"]),
        (
            [rule(paths=["a"])],
            ["rule 'r', paths: 'a' must be absolute, or begin with {worktree}, {root}, ~/ or *"],
        ),
        ([rule(paths=["{root}a"])], ["rule 'r', paths: '{root}a': a slash must follow the brace"]),
        *(
            (
                [rule(paths=[path])],
                [
                    f"rule 'r', paths: {path!r}: there are only "
                    "{worktree}, {root}, {slots}, {home}, {git}, {liza}, {state}"
                ],
            )
            for path in ("{x}/a", "{root", "{worktree/a")
        ),
        ([rule(commands=[])], ["rule 'r', tools: a rule needs at least one of tools, commands and paths"]),
        ([rule(name=f"r{n}") for n in range(500)], []),
        ([rule(name=f"r{n}") for n in range(501)], ["rule: there are 501 rules, and at most 500 are accepted"]),
    ],
)  # fmt: skip
def test_an_error_in_a_guard_file_names_its_rule_and_its_field(rows: object, errors: list[str]) -> None:
    assert find_rule_errors(rows) == errors

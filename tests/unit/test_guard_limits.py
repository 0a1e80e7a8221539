"""How much of a script the guards look at, and what they say where that ends: beyond a limit nothing is allowed."""

from __future__ import annotations

import pytest

from liza.programs.guards.shell_parser import parse_script
from liza.rules.guards.acts import SHELL, WRITE, Act
from liza.rules.guards.prepared_rules import PreparedRules
from liza.rules.guards.shell_scope import Scope
from liza.rules.guards.shell_syntax import CannotJudge, Redirect, ShellNode, WordPart
from liza.rules.guards.shell_walk import ShellWalk
from tests.unit.guard_session import WORKTREE, facts, judge
from tests.unit.test_guard_writes import acts, short


def words_of(command: str, program: str = "a") -> list[str]:
    """The commands of one program, as lines."""
    return [short(" ".join(act.words)) for act in acts(command) if act.words[:1] == (program,)]


def functions(number: int) -> str:
    """A script of functions, each of which calls the one before."""
    return "f0() { a; }; " + "".join(f"f{n}() {{ f{n - 1}; }}; " for n in range(1, number)) + f"f{number - 1}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("eval " * 11 + "a", ""),
        ("eval " * 12 + "a", "it has more than 12 scripts within scripts"),
        (functions(11), ""),
        (functions(12), "its functions call each other too deeply"),
        ("a;" * 5000, ""),
        ("a;" * 5001, "it runs more than 5000 commands; put it into a script file"),
    ],
    ids=["scripts", "too many scripts", "functions", "too many functions", "commands", "too many commands"],
)
def test_a_script_with_too_many_parts_is_not_judged(script: str, reason: str) -> None:
    if not reason:
        assert set(words_of(script)) == {"a"}
        return
    with pytest.raises(CannotJudge) as caught:
        acts(script)
    assert str(caught.value) == reason
    assert judge(script).reason == f"Liza cannot judge this command: {reason}. Write it in a simpler way"


def test_scripts_one_after_the_other_are_not_within_each_other() -> None:
    assert words_of("eval a; " * 20) == ["a"] * 20
    assert words_of("f() { a; }; " + "f; " * 20) == ["a"] * 20


def test_a_variable_with_more_than_eight_values_is_unknown() -> None:
    assert words_of("".join(f"x={n};" for n in range(8)) + "a $x") == [f"a {n}" for n in range(8)]
    assert words_of("".join(f"x={n};" for n in range(9)) + "a $x") == ["a …"]


def test_a_word_or_a_command_with_more_than_sixteen_combinations_is_unknown() -> None:
    four = "x=1;x=2;x=3;x=4;y=5;y=6;y=7;y=8;"
    assert len(words_of(f"{four} a $x$y")) == len(words_of(f"{four} a $x $y")) == 16
    assert words_of(f"{four} y=9; a b $x$y c") == ["a b … c"]
    assert words_of(f"{four} y=9; a b $x $y") == ["a b … …"]


def test_more_than_64_words_of_braces_or_a_deep_nest_of_them_are_unknown() -> None:
    eight = "{1,2,3,4,5,6,7,8}"
    assert len(words_of(f"a {eight}{eight}")[0].split()) == 65
    assert words_of(f"a {eight}{{1,2,3,4,5,6,7,8,9}}") == ["a …"]
    assert words_of("a {1,{2,{3,{4,{5,6}}}}}") == ["a 1 2 3 4 5 6"]
    assert "…" in words_of("a {1,{2,{3,{4,{5,{6,{7,8}}}}}}}")[0]


def test_a_long_value_is_unknown() -> None:
    assert words_of(f"x={'b' * 65_536}; a $x") == [f"a {'b' * 65_536}"]
    assert words_of(f"x={'b' * 65_537}; a $x") == ["a …"]


def test_a_long_command_is_shortened_for_people() -> None:
    assert Act(SHELL, ["a" * 200]).text == "a" * 200
    assert Act(SHELL, ["a" * 201]).text == "a" * 199 + "…"
    assert Act(WRITE, target="/a").text == "write /a"


def test_a_redirection_that_reads_and_writes_is_a_write() -> None:
    def written(operator: str, target: str) -> list[tuple[str, str]]:
        redirect = Redirect(operator, (WordPart("text", target),))
        walk = ShellWalk(PreparedRules({"rules": []}).table, facts(), parse_script)
        walk.walk(ShellNode("redirected", redirects=[redirect]), Scope(facts()), "")
        return [(act.tool, act.target) for act in walk.acts]

    path = f"{WORKTREE}/a"
    assert written("<>", "a") == written(">", "a") == written(">&", "a") == written("&>", "a") == [("write", path)]
    assert written("<", "a") == [("read", path)]
    assert written(">&", "2") == written(">&", "-") == written(">", "/dev/null") == []


def test_without_a_table_of_programs_only_the_commands_are_seen() -> None:
    rules = PreparedRules({"rules": []})
    script = "cp a b; rm a; touch a; chmod x a; sed -i s a; bash -c b; env c; cat a; make -C x; curl -o a b; awk c"
    walk = ShellWalk(rules.table, facts(), parse_script, rules.guarded_programs)
    walk.walk_script(script)
    assert [" ".join(act.words) for act in walk.acts if act.tool == SHELL] == script.split("; ")
    assert {act.tool for act in walk.acts} == {SHELL}
    assert (rules.tools, rules.tests, rules.guarded_programs) == ({}, "", frozenset())


def test_the_programs_that_denying_rules_name_are_looked_for_in_other_languages() -> None:
    rows = [
        {"name": "a", "commands": ["git|hub push", "npm* x"]},
        {"name": "b", "allow": True, "commands": ["make"]},
    ]
    assert PreparedRules({"rules": rows, "tests": " make \n"}).guarded_programs == {"git", "hub"}
    assert PreparedRules({"rules": rows, "tests": " make \n"}).tests == "make"
    assert PreparedRules({"rules": rows, "tests": None}).tests == ""


def test_the_rules_for_a_command_are_those_whose_patterns_may_match_it() -> None:
    rows = [
        {"name": "a", "commands": ["git push", "hub x"]},
        {"name": "b", "paths": ["/x"]},
        {"name": "c", "commands": ["git <branch>", "git -f"]},
    ]
    rules = PreparedRules({"rules": rows})

    def names(program: str, first: str = "") -> list[tuple[str, int]]:
        return [(rule.name, len(patterns)) for rule, patterns in rules.rules_for(program, first)]

    assert names("git", "push") == [("a", 1), ("b", 0), ("c", 2)]
    assert names("git", "log") == [("b", 0), ("c", 2)]
    assert names("git") == names("git", "push")
    assert names("hub", "x") == [("a", 1), ("b", 0)]
    assert names("ls") == [("b", 0)]
    assert names("git", "log") == [("b", 0), ("c", 2)]

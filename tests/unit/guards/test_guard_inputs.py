"""How the inputs of tools and the words of commands are read before a rule judges them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict

from liza.guards.rules.acts import (
    CREW,
    ELSEWHERE,
    FETCH,
    MARK,
    OWN,
    SHELL,
    UNKNOWN,
    WRITE,
    Act,
    CannotJudge,
    Command,
    CommandPattern,
    GuardFacts,
    match_command,
    split_options,
    values_of,
)
from liza.guards.rules.guard_rules import find_rule_errors
from liza.guards.rules.judgment import PreparedRules
from liza.guards.rules.tool_calls import CalledTool, ScriptReader, read_tool
from liza.guards.shell_parser import parse_script
from tests.unit.guard_session import HOME, ROOT, SLOTS, WORKTREE, defaults, facts, judge, judge_tool, prepared

PATCH = "*** Begin Patch\n*** Add File: a\n+x\n*** Move to: b\n*** End Patch"


def described(call: CalledTool) -> dict[str, Any]:
    """The fields of a tool call that are not empty."""
    return {name: value for name, value in asdict(call).items() if value}


def acts(command: str) -> list[Act]:
    """The acts of a command in a coder's worktree."""
    reader = ScriptReader(prepared().table, facts(), parse_script, WORKTREE)
    reader.read(command)
    return reader.acts


def paths(command: str, tool: str = WRITE) -> str:
    """The paths of one tool, in their order; ``/**`` behind one that is removed with all below."""
    text = " ".join(act.target + "/**" * act.is_tree for act in acts(command) if act.tool == tool)
    return text.replace(WORKTREE, "W").replace(SLOTS, "S").replace(ROOT, "R").replace(HOME, "H")


def lines(command: str) -> list[str]:
    """The commands of a script, each with its area if that is not the worktree."""
    shown = [act for act in acts(command) if act.tool == SHELL]
    texts = [" ".join(act.words).replace(MARK, "@") for act in shown]
    return [text if act.area == OWN else f"{text} ({act.area})" for text, act in zip(texts, shown, strict=True)]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("Bash", {"command": "ls", "cwd": "/x"}, {"kind": "shell", "texts": ("ls",), "directory": "/x"}),
        ("bash", {"command": "ls", "workdir": "/x"}, {"kind": "shell", "texts": ("ls",), "directory": "/x"}),
        ("bash", {"command": "ls", "cwd": 3}, {"kind": "shell", "texts": ("ls",)}),
        ("bash", {"command": ["ls", "-l x"]}, {"kind": "shell", "texts": ("ls '-l x'",)}),
        ("bash", {"command": "ls", "args": ["-l"]}, {"kind": "shell", "texts": ("ls -l",)}),
        ("bash", {"command": "ls", "args": []}, {"kind": "shell", "texts": ("ls",)}),
        ("exec_command", {"command": ["ls", 3], "cmd": "pwd"}, {"kind": "shell", "texts": ("pwd",)}),
        ("bash", "ls -l", {"kind": "shell", "texts": ("ls -l",)}),
        ("bash", '{"command": "ls"}', {"kind": "shell", "texts": ("ls",)}),
        ("bash", {"_input": "ls"}, {"kind": "shell", "texts": ("ls",)}),
        ("bash", {"_input": {"command": "ls"}}, {"kind": "shell", "texts": ("ls",)}),
        ("other", {"cmd": "ls"}, {"kind": "shell", "texts": ("ls",)}),
        ("other", {"script": "ls"}, {"kind": "other:other"}),
        ("write_stdin", {"chars": "ls", "input": "x"}, {"kind": "typed", "texts": ("ls", "x")}),
        ("Write", {"file_path": "a", "content": "x"}, {"kind": "write", "texts": ("a",)}),
        ("move", {"source": "a", "destination": "b"}, {"kind": "write", "texts": ("a", "b"), "is_tree": True}),
        ("delete", {"path": "a"}, {"kind": "write", "texts": ("a",), "is_tree": True}),
        ("Read", {"locations": [{"path": "a"}, {"filePath": "b"}, {"x": "c"}, "d"]},
         {"kind": "read", "texts": ("a", "b", "d")}),
        ("str_replace_editor", {"command": "view", "path": "a"}, {"kind": "read", "texts": ("a",)}),
        ("str_replace_editor", {"command": "create", "path": "a"}, {"kind": "write", "texts": ("a",)}),
        ("apply_patch", {"input": PATCH}, {"kind": "write", "texts": ("a", "b")}),
        ("apply_patch", PATCH, {"kind": "write", "texts": ("a", "b")}),
        ("Write", PATCH, {"kind": "write"}),
        ("WebFetch", {"url": "https://x.y"}, {"kind": "fetch", "texts": ("https://x.y",)}),
        ("mcp__a__b", {}, {"kind": "mcp:a/b"}),
        ("MCP: b", {}, {"kind": "mcp:*/b"}),
        ("mcp:a/b", {}, {"kind": "mcp:a/b"}),
        ("TodoWrite", [], {"kind": "other:plan"}),
        ("x", "[1]", {"kind": "other:x"}),
        ("x", {"path": "a"}, {"kind": "other:x"}),
        ("x", {"path": "a", "cwd": "/d", "text": "y"}, {"kind": "other:x", "texts": ("a",), "directory": "/d"}),
    ],
)  # fmt: skip
def test_a_tool_is_read_as_what_it_does(name: str, given: object, expected: dict[str, Any]) -> None:
    assert described(read_tool(name, given, prepared().tools)) == expected


@pytest.mark.parametrize("given", [{}, {"command": ["ls", 3]}, {"command": []}, 3, None, {"args": ["ls"]}])
def test_a_shell_call_without_a_command_is_a_named_error(given: object) -> None:
    with pytest.raises(ValueError, match="the input of Bash has no command \\(command, cmd, script\\)"):
        read_tool("Bash", given, prepared().tools)


def test_a_project_can_name_a_tool_and_its_input_keys() -> None:
    rows = {"db|store": {"is": "write", "key": ["file"]}, "run": {}}
    tools = PreparedRules({"rules": [], "vocabulary": rows}).tools
    assert described(read_tool("Store", {"file": "a", "path": "b"}, tools)) == {"kind": "write", "texts": ("a",)}
    assert described(read_tool("Run", {"script": "ls"}, tools)) == {"kind": "shell", "texts": ("ls",)}


@pytest.mark.parametrize(
    ("tool", "given", "rule"),
    [
        ("Write", {"file_path": f"file://{ROOT}/a"}, "no-write-in-checkout"),
        ("Write", {"file_path": "~/.ssh/config"}, "no-write-in-home-settings"),
        ("Write", {"file_path": "~/shop/a"}, "no-write-in-checkout"),
        ("Write", {"file_path": "a", "cwd": ROOT}, "no-write-in-checkout"),
        ("Write", {"file_path": "../a", "cwd": "x"}, "own-worktree"),
        ("Write", {"file_path": "a", "directory": "../two"}, "no-write-in-other-worktrees"),
        ("bash", {"command": "touch a", "cwd": "../two"}, "no-write-in-other-worktrees"),
        ("bash", {"command": ["touch", "../two/a"]}, "no-write-in-other-worktrees"),
        ("write_stdin", {"chars": "cd x\ngit commit"}, "known-git-commands"),
        ("move", {"source": HOME, "destination": "x"}, "no-write-in-git"),
    ],
)
def test_a_path_of_a_tool_is_seen_from_its_directory(tool: str, given: object, rule: str) -> None:
    assert judge_tool(tool, given).rule == rule


def test_rules_can_name_tools_and_judge_fetches_without_addresses() -> None:
    def rule(tool: str, **fields: object) -> list[dict[str, object]]:
        return [{"name": "mine", "tools": [tool], "reason": "Not <branch> in {worktree}.", **fields}]

    assert judge_tool("WebFetch", {}, rules=rule("fetch")).rule == "mine"
    assert judge_tool("WebFetch", {"url": "https://a.b/c"}, rules=rule("fetch", paths=["https://a.b/*"])).rule == "mine"
    assert judge_tool("WebFetch", {"url": "https://a.c"}, rules=rule("fetch", paths=["https://a.b/*"])).allowed
    assert judge_tool("bash", {"command": "curl -s a.b/c"}, rules=rule("fetch", paths=["*a.b*"])).rule == "mine"
    assert judge_tool("x", {}, rules=rule("other")).rule == "mine"
    assert judge_tool("mcp__a__b", {}, rules=rule("other")).allowed
    assert judge_tool("mcp__a__b", {}, rules=rule("mcp:a/*")).rule == "mine"
    assert judge_tool("Read", {"path": "a"}, rules=rule("read")).reason == (
        f"[liza] not run: read {WORKTREE}/a: Not task/cart in {WORKTREE}."
    )
    assert judge_tool("Read", {}, rules=rule("read")).rule == "mine"
    assert judge_tool("Read", {"path": "a"}, "planner", rule("read", roles=["coder"])).allowed
    assert judge_tool("Read", {"path": "a"}, "code-reviewer", rule("read", roles=["reviewer"])).rule == "mine"
    assert judge_tool("Read", {"path": "a"}, rules=rule("read", areas=["crew"])).rule == "mine"
    assert judge("ls", rules=rule("shell", areas=["crew"])).allowed
    assert judge("ls ..", rules=rule("shell", areas=["own"])).rule == "mine"
    assert judge("cd ..; ls", rules=rule("shell", areas=["own"])).allowed
    assert judge('cd "$X" && ls', rules=rule("shell", commands=["ls"], areas=["unknown"])).rule == "mine"


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("a && b || c; d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("if a; then b; else c; fi; for x in y; do d; done; while e; do f; done", list("abcdef")),
        ("case x in x) a;; esac; { b; }; f() { c; }; ! d", ["a", "b", "c", "d"]),
        ('x=$(a) b "y $(c)" `d` <(e)', ["a", "c", "d", "e", "b @x=$(a) y $(c) `d` <(e)"]),
        ("a ${z:-$(b)} >$(c)", ["b", "a ${z:-$(b)}", "c"]),
        ("cat <<EOF\n$(a)\nb\nEOF", ["cat", "a"]),
        ("g\"\"it 'pu''sh' \\-x a\\ b $y", ["git push -x a b $y"]),
        ("a 'b c' \"d \\$e\" $'f'", ["a b c d $e $'f'"]),
        ("A=1 B= git -c User.Name=Y -p log -C", ["git @A=1 @B= @-c=user.name=Y @-p= log -C"]),
        ("git checkout README.md x; git checkout x", ["git checkout -- README.md x", "git checkout x"]),
        ("env -u X -i A=1 a b; timeout -k 3 5s a; nice -n 5 a", [
            "env -u X -i A=1 a b", "a @A=1 b", "timeout -k 3 5s a", "a", "nice -n 5 a", "a",
        ]),
        ("xargs -I{} a {}; command -v a", ["xargs -I{} a {}", "a {}", "command -v a"]),
        ("time { a; }", ["time { a", "a", "}"]),
        ("find . -exec a {} ';' -o -ok b +", ["find . -exec a {} ; -o -ok b +", "a {}", "b"]),
        ("bash -o pipefail -ec 'a; b' c; sh x.sh", ["bash -o pipefail -ec a; b c", "a", "b", "sh x.sh"]),
        ("eval a 'b; c'", ["eval a b; c", "a b", "c"]),
        ("uv run --with x -p 3.12 a; npx -p b a", [
            "uv run --with x -p 3.12 a", f"a @VIRTUAL_ENV={WORKTREE}", "npx -p b a", "a",
        ]),
        ("export A=1; declare -x B", ["export @A=1 A=1", "declare @-x @B -x B"]),
    ],
)  # fmt: skip
def test_commands_of_a_line_are_read_as_written(script: str, commands: list[str]) -> None:
    assert lines(script) == commands


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("cd .. && a; cd two; b; cd /tmp; c", ["a (crew)", "b (crew)", "c (elsewhere)"]),
        ("(cd ..; a); b; pushd ~/shop; c; popd; d", ["a (crew)", "b", "c (crew)", "d (unknown)"]),
        ('cd "$D"; a; cd -; b; cd; c', ["a (unknown)", "b (unknown)", "c (elsewhere)"]),
        ('cd "$(git rev-parse --show-toplevel)/x"; a', ["git rev-parse --show-toplevel", "a"]),
        ("cd $PWD/..; a", ["a (crew)"]),
        ("git -C .. -C two add a; git -C ~/shop log", ["git @-C=.. @-C=two add a (crew)", "git @-C=~/shop log (crew)"]),
        ("bash -c 'cd ..; a'; b", ["bash -c cd ..; a", "a (crew)", "b"]),
        ("a -C ..; b --prefix=/tmp; c", ["a -C .. (crew)", "b --prefix=/tmp (elsewhere)", "c"]),
        ("env -C /tmp a; b", ["env -C /tmp a (elsewhere)", "a (elsewhere)", "b"]),
    ],
)  # fmt: skip
def test_a_command_is_judged_in_the_directory_changed_to(script: str, commands: list[str]) -> None:
    assert lines(script) == commands


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("echo x > a", "W/a"),
        ("echo x >> ../two/a 2> b", "S/two/a W/b"),
        ("echo x >&2 2>&- > /dev/null", ""),
        ("cd .. && a > b; (cd two; a) > c", "S/b S/c"),
        ("tee a ../b < x", "W/a S/b"),
        ("touch a; mkdir -p b/c", "W/a W/b/c"),
        ("rm -f a -- -b", "W/a/** W/-b/**"),
        ("cp a $LIZA_ROOT", "R"),
        ("mv a ../b", "S/b W/a/**"),
        ("ln -s a ~/x; rsync -a a b/", "H/x W/b"),
        ("sed -n p a; sed -i.bak s/a/b/ a b; sed -ni -e p c", "W/a W/b W/c"),
        ("perl -pi -e s/a/b/ a; yq -i .x=1 b; yq .x c", "W/a W/b"),
        ("touch $HOME/a ${HOME}/b $PWD/c '~/d' $X/e", "H/a H/b W/c H/d"),
        ("touch - a; find . -exec rm {} +", "W/a"),
    ],
)
def test_the_paths_that_a_command_writes_are_judged(command: str, written: str) -> None:
    assert paths(command) == written


def test_the_addresses_that_a_command_fetches_are_judged() -> None:
    assert paths("curl -H a:b https://x.y/z localhost:80; wget x.y", FETCH) == "https://x.y/z x.y"


@pytest.mark.parametrize(
    ("command", "marks"),
    [
        ("curl -d x https://H.example/Y", "@method=POST @url=h.example/y"),
        ("curl -sXPUT https://h.example:8/y", "@method=PUT @url=h.example/y"),
        ("curl --req DELETE https://ann:b@h.example./y", "@method=DELETE @url=h.example/y"),
        ("curl -G -d x h.example", "@method=GET @url=h.example/"),
        ("curl -T a h.example", "@method=POST @url=h.example/"),
        ("curl --json x --url=h.example", "@method=POST @url=h.example/"),
        ("curl -d 'query { x }' https://h.example/graphql", "@method=GET @url=h.example/graphql"),
        ("curl -d 'mutation { x }' https://h.example/graphql", "@method=POST @url=h.example/graphql"),
        ("curl -d @x https://h.example/graphql", "@method=POST @url=h.example/graphql"),
        ('curl -X "$M" $X https://h.example', "@method=$M @url=h.example/"),
        ("curl $X https://h.example", "@method=$X @url=h.example/"),
        ("curl -X GET -X POST h.example", "@method=POST @url=h.example/"),
        ("curl --unix-socket=/a/b.sock http://x/y", "@method=GET @url=/a/b.sock"),
        ("wget --post-data x h.example", "@method=POST @url=h.example/"),
        ("http PUT h.example a=b", "@method=PUT @url=h.example/"),
        ("http h.example a==b a:b x", "@method=GET @url=h.example/"),
        ("xh -a b:c h.example a@x", "@method=POST @url=h.example/"),
        ("gh api repos/a", "@method=GET"),
        ("gh -R a/b api x -f a=b", "@method=POST"),
        ("gh api x --method patch -f a=b", "@method=PATCH"),
        ("gh api graphql -f query='query'", "@method=GET"),
        ("kill -1 5", ""),
        ("kill -9 -1", "@target=all"),
        ("kill -- -1", "@target=all"),
        ("SKIP=a git commit", "@SKIP=a @hooks=skipped"),
        ("echo a | bash -x", "@stdin=script"),
        ("pip install x", "@environment=shared"),
        ("PATH=$PWD/.venv/bin:$PATH pip install x", "@PATH=$PWD/.venv/bin:$PATH"),
    ],
)
def test_a_command_is_marked_with_what_its_words_mean_together(command: str, marks: str) -> None:
    act = [act for act in acts(command) if act.tool == SHELL][-1]
    assert " ".join(word for word in act.words if word[:1] == MARK).replace(MARK, "@") == marks


@pytest.mark.parametrize(
    ("pattern", "words", "is_match"),
    [
        ("a b", ["a"], False),
        ("a b", ["a", "-x", "b", "c"], True),
        ("a b $", ["a", "b", "c"], False),
        ("a b $", ["a", "b"], True),
        ("a b", ["a", "--", "b"], True),
        ("a * c", ["a", "b", "d"], False),
        ("a b*|c?", ["a", "cd"], True),
        ("a -f", ["a", "b", "-f"], True),
        ("a -f", ["a", "--", "-f"], False),
        ("a -f", ["a", "-xf"], True),
        ("a -f", ["a", "-C/f"], False),
        ("a -f", ["a", "-f/x"], True),
        ("a -f", ["a", "--f"], False),
        ("a --", ["a", "--", "b"], True),
        ("a --", ["a", "b"], False),
        ("a --force", ["a", "--force=x"], True),
        ("a --force", ["a", "--for"], True),
        ("a --force", ["a", "--fo"], False),
        ("a --force", ["a", "--forces"], False),
        ("a --x=y*", ["a", "--x=yz"], True),
        ("a --x=y*", ["a", "--x=z"], False),
        ("a -o|--out", ["a", "--out"], True),
        ("a @-c=x*", ["a", f"{MARK}-c=xy", "b"], True),
        ("a @-c=x*", ["a", "@-c=xy"], False),
        ("a b @x|@y", ["a", "b", f"{MARK}y"], True),
        ("a b @x @z", ["a", "b", f"{MARK}x"], False),
        ("a <branch>", ["a", "task/cart"], True),
        ("a <branch>", ["a", "task/other"], False),
        ("a <commit>", ["a", "HEAD~2"], True),
        ("a <commit>", ["a", "1234567"], True),
        ("a <commit>", ["a", "123456"], False),
        ("a <commit>", ["a", "f" * 40 + "^"], True),
        ("a <commit>", ["a", "f" * 41], False),
        ("a <commit>", ["a", "feature"], False),
        ("a <commit>", ["a", "@~2"], True),
        ("a <commit>", ["a", "@{-1}"], False),
        ("a <commit>", ["a", "MERGE_HEAD"], True),
    ],
)
def test_a_pattern_concerns_a_command(pattern: str, words: list[str], is_match: bool) -> None:
    assert match_command(CommandPattern(pattern), Command(words, {}, "task/cart")) is is_match


def test_values_of_options_are_no_arguments() -> None:
    values = {"a": ("-o",), "a b": ("-p", "-u*")}
    assert Command(["a", "b", "-o", "x", "-p", "y", "-un", "z"], values).arguments == ["b", "z"]
    assert ("-n", "") not in Command(["a", "b", "-un"], values).options
    assert Command(["a", "c", "-o", "x", "-p", "y"], values).arguments == ["c", "y"]
    assert split_options(["-", "-x", "--", "-y", "--"])[1] == ["-", "-y", "--"]
    words = ["-o", "a", "-ob", "--out", "c", "--out=d", "-xo", "e", "--xo", "f"]
    assert values_of(words, ("-o", "--out")) == ["a", "b", "c", "d", "e"]
    assert values_of(["-o"], ("-o",)) == [""]


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git checkout @{-1}", "no-checkout-of-branches"),
        ("git branch @other", "no-shared-refs"),
        (f"git tag {MARK}v1", "no-shared-refs"),
        ("git checkout @", "own-branch"),
        ("git checkout @ README.md", "own-branch"),
    ],
)
def test_words_of_other_commands_are_not_mistaken_for_lizas(command: str, rule: str) -> None:
    assert judge(command).rule == rule


def test_an_area_is_that_of_the_real_directory() -> None:
    session = facts(real=lambda path: path.replace("/link", ROOT))
    areas = {WORKTREE: OWN, f"{WORKTREE}/x": OWN, SLOTS: CREW, f"{SLOTS}/onetwo": CREW, f"{ROOT}/x": CREW}
    areas |= {"/link/a": CREW, "/tmp": ELSEWHERE, f"{ROOT}2": ELSEWHERE, "": UNKNOWN}
    assert {path: session.area_of(path) for path in areas} == areas
    assert facts(worktree="", slots="").area_of(WORKTREE) == ELSEWHERE
    assert GuardFacts(home="/h").join("/a", "../../b/./~") == "/b/~"
    assert [GuardFacts(home="/h").join("/a", path) for path in ("~", "~/b", "~ann", "/c/..")] == [
        "/h",
        "/h/b",
        "/a/~ann",
        "/",
    ]


def test_a_script_that_is_too_long_is_not_judged() -> None:
    assert lines("a;" * 5000) == ["a"] * 5000
    with pytest.raises(CannotJudge, match="it runs more than 5000 commands; put it into a script file"):
        acts("a;" * 5001)
    with pytest.raises(CannotJudge, match="at most 524288 are examined"):
        acts("a" * 524_289)
    with pytest.raises(CannotJudge, match="cannot be parsed as a shell script, near 'a' in line 1"):
        acts("a\n'b")
    assert Act(SHELL, ("a" * 201,)).text == "a" * 199 + "…"


def rule(**fields: object) -> dict[str, object]:
    return {"name": "r", "reason": "why", "commands": ["git push"], **fields}


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([rule()], ""),
        ([rule(allow=True, reason="", unconfined=True)], ""),
        ([rule(roles=["coder", "reviewer", "code_reviewer"], areas=["own"], tools=["mcp:x/y", "other:z", "read"])], ""),
        ([rule(paths=["/a", "*", "~/x", "https://x", "{worktree}", "{root}/a"])], ""),
        ([3], "rule 1, it is a whole number, expected a mapping"),
        ([rule(), rule()], "rule 'r', name: another rule has it already"),
        ([rule(name="")], "rule 1, name: must be a text"),
        ([rule(name=3)], "rule 1, name is a whole number, expected a text"),
        ([rule(colour=1)], "rule 'r', colour: unknown field; there are name, allow, unconfined, reason"),
        ([rule(allow="yes")], "rule 'r', allow is a text, expected true or false"),
        ([rule(reason=" ")], "rule 'r', reason: a rule that denies must tell the agent what to do instead"),
        ([rule(roles="coder")], "rule 'r', roles is a text, expected a list"),
        ([rule(roles=[" "])], "rule 'r', roles: ' ' must have 1 to 1000 characters"),
        ([rule(roles=["boss"])], "rule 'r', roles: 'boss' is no role; there are planner, coder, code-reviewer"),
        ([rule(tools=["shel"])], "rule 'r', tools: 'shel' is no tool; there are shell, read, write, fetch, other and"),
        ([rule(areas=["x"])], "rule 'r', areas: 'x' is no area; there are own, crew, elsewhere, unknown"),
        ([rule(commands=["-x"])], "rule 'r', commands: '-x' must begin with the name of a program"),
        ([rule(commands=["git a|"])], "rule 'r', commands: 'git a|' has an empty alternative"),
        ([rule(commands=["git $ a"])], "rule 'r', commands: 'git $ a' has $ before the last word"),
        ([rule(commands=["x" * 1001])], f"rule 'r', commands: '{'x' * 40}' must have 1 to 1000 characters"),
        ([rule(paths=["a"])], "rule 'r', paths: 'a' must be absolute, or begin with {worktree}, {root}, ~/ or *"),
        ([rule(paths=["{root}a"])], "rule 'r', paths: '{root}a' must begin with one of {worktree}, {root}, {slots}"),
        ([rule(paths=["{x}/a"])], "rule 'r', paths: '{x}/a' must begin with one of {worktree}, {root}, {slots}"),
        ([rule(commands=[])], "rule 'r', tools: a rule needs at least one of tools, commands and paths"),
    ],
)  # fmt: skip
def test_a_guard_file_error_names_its_rule_and_field(rows: list[Any], error: str) -> None:
    errors = find_rule_errors(rows)
    assert (errors[0] if errors else "").startswith(error)
    assert len(errors) == bool(error)


def test_the_rules_that_come_with_liza_have_no_error() -> None:
    assert find_rule_errors(defaults()["rule"]) == []

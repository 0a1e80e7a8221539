"""How the inputs of tools and the words of commands are read before a rule judges them."""

from __future__ import annotations

from typing import Any

import pytest

from liza.rules.guards.acts import CREW, ELSEWHERE, OWN, SHELL, UNKNOWN, GuardFacts, join_path
from liza.rules.guards.command_pattern import Command, CommandPattern, match_command
from liza.rules.guards.shell_table import ShellTable, option_values, positionals, split_wrapper
from liza.rules.guards.tool_vocabulary import NamedTool, read_tool
from liza.rules.guards.word_matching import ANY, FILES, MANY, MARK, MAYBE, NO, YES
from tests.unit.guard_session import HOME, ROOT, SLOTS, WORKTREE, defaults, facts, judge, judge_tool
from tests.unit.test_guard_writes import acts

PATCH = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"


def described(tool: NamedTool) -> dict[str, Any]:
    """The fields of a tool that are not empty."""
    fields = {name: getattr(tool, name) for name in NamedTool.__slots__}
    return {name: value for name, value in fields.items() if value}


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("Bash", {"command": "ls", "cwd": "/x"}, {"kind": "shell", "texts": ["ls"], "directory": "/x"}),
        ("bash", {"command": "ls", "workdir": "/x"}, {"kind": "shell", "texts": ["ls"], "directory": "/x"}),
        ("bash", {"command": "ls", "dir_path": "/x"}, {"kind": "shell", "texts": ["ls"], "directory": "/x"}),
        ("bash", {"command": "ls", "working_directory": "/x"}, {"kind": "shell", "texts": ["ls"], "directory": "/x"}),
        ("bash", {"command": "ls", "directory": "/x"}, {"kind": "shell", "texts": ["ls"], "directory": "/x"}),
        ("bash", {"command": "ls", "workingDirectory": "/x"}, {"kind": "shell", "texts": ["ls"], "directory": "/x"}),
        ("bash", {"command": "ls", "cwd": 3}, {"kind": "shell", "texts": ["ls"]}),
        ("bash", {"command": ["ls", "-l"]}, {"kind": "shell", "words": ["ls", "-l"]}),
        ("bash", {"command": "ls", "args": ["-l"]}, {"kind": "shell", "words": ["ls", "-l"]}),
        ("bash", {"command": "ls", "args": []}, {"kind": "shell", "texts": ["ls"]}),
        ("bash", {"command": "ls", "args": ["-l", 3]}, {"kind": "shell", "texts": ["ls"]}),
        ("exec_command", {"command": ["ls", 3], "cmd": "pwd"}, {"kind": "shell", "texts": ["pwd"]}),
        ("bash", "ls -l", {"kind": "shell", "texts": ["ls -l"]}),
        ("bash", '{"command": "ls"}', {"kind": "shell", "texts": ["ls"]}),
        ("bash", {"_input": "ls"}, {"kind": "shell", "texts": ["ls"]}),
        ("bash", {"_input": {"command": "ls"}}, {"kind": "shell", "texts": ["ls"]}),
        ("other", {"cmd": "ls"}, {"kind": "shell", "texts": ["ls"]}),
        ("other", {"command": ["ls"]}, {"kind": "shell", "words": ["ls"]}),
        ("other", {"script": "ls"}, {"kind": "other:other"}),
        ("write_stdin", {"chars": "ls", "input": "x"}, {"kind": "typed", "texts": ["ls", "x"]}),
        ("Write", {"file_path": "a", "content": "x"}, {"kind": "write", "texts": ["a"]}),
        ("move", {"source": "a", "destination": "b"}, {"kind": "write", "texts": ["a", "b"], "is_tree": True}),
        ("delete", {"path": "a"}, {"kind": "write", "texts": ["a"], "is_tree": True}),
        ("Read", {"locations": [{"path": "a"}, {"filePath": "b"}, {"x": "c"}, "d"]},
         {"kind": "read", "texts": ["a", "b", "d"]}),
        ("read_many_files", {"paths": ["a", "", 3], "include": "b"}, {"kind": "read", "texts": ["a", "b"]}),
        ("str_replace_editor", {"command": "view", "path": "a"}, {"kind": "read", "texts": ["a"]}),
        ("str_replace_editor", {"command": "create", "path": "a"}, {"kind": "write", "texts": ["a"]}),
        ("apply_patch", {"input": PATCH}, {"kind": "write", "patch": PATCH}),
        ("apply_patch", PATCH, {"kind": "write", "patch": PATCH}),
        ("Write", PATCH, {"kind": "write"}),
        ("WebFetch", {"url": "https://x.y", "prompt": "z"}, {"kind": "fetch", "texts": ["https://x.y"]}),
        ("mcp__a__b", {}, {"kind": "mcp:a/b"}),
        ("MCP: b", {}, {"kind": "mcp:*/b"}),
        ("mcp:a/b", {}, {"kind": "mcp:a/b"}),
        ("TodoWrite", [], {"kind": "other:plan"}),
        ("x", "[1]", {"kind": "other:x"}),
        ("x", {"path": "a"}, {"kind": "other:x"}),
        ("x", {"path": "a", "cwd": "/d", "text": "y"}, {"kind": "other:x", "texts": ["a"], "directory": "/d"}),
        ("x", {"uri": "file:///a", "content": "y"}, {"kind": "other:x", "texts": ["file:///a"]}),
        ("mcp__fs__copy_file", {"source": "a", "dest": "b"}, {"kind": "mcp:fs/copy_file", "texts": ["b"]}),
        ("mcp__fs__create", {"from": "a", "to": "b"}, {"kind": "mcp:fs/create", "texts": ["a", "b"]}),
        ("mcp__fs__rename", {"oldPath": "a", "newPath": "b", "cwd": "/d"},
         {"kind": "mcp:fs/rename", "texts": ["a", "b"], "directory": "/d", "is_tree": True}),
        ("mcp__gitlab__delete_file", {"path": "a"}, {"kind": "mcp:gitlab/delete_file"}),
        ("mcp__mygitea__write", {"path": "a"}, {"kind": "mcp:mygitea/write"}),
        ("mcp__fs__github_write", {"path": "a"}, {"kind": "mcp:fs/github_write", "texts": ["a"]}),
        ("mcp__git__git_add", {"repo_path": "/r", "files": ["a"]},
         {"kind": "mcp:git/git_add", "directory": "/r", "git": ["add"]}),
        ("mcp__git__git-branch", {"repo": "file:///r", "operation": "list", "branch": "b"},
         {"kind": "mcp:git/git-branch", "directory": "/r", "git": ["branch", "--list", "b"]}),
        ("git_stash", {"cwd": "/d", "path": "/r", "action": "show"},
         {"kind": "other:git_stash", "directory": "/d", "git": ["stash", "--show"]}),
        ("git_rebase", {"mode": "abort", "args": ["x", "y"]},
         {"kind": "other:git_rebase", "git": ["rebase", "--abort", "x", "y"]}),
        ("x_git_merge", {"subcommand": "continue"}, {"kind": "other:x_git_merge", "git": ["merge", "--continue"]}),
        ("xgit_merge", {}, {"kind": "other:xgit_merge"}),
    ],
)  # fmt: skip
def test_a_tool_is_read_as_what_it_does(name: str, given: object, expected: dict[str, Any]) -> None:
    assert described(read_tool(name, given, defaults()["tools"])) == expected


@pytest.mark.parametrize("verb", ["delete", "remove", "move", "rename", "rmdir"])
def test_a_tool_that_removes_a_directory_removes_what_is_below_it(verb: str) -> None:
    verdict = judge_tool(f"mcp__fs__{verb}", {"src": HOME})
    assert verdict.rule == "no-write-in-git"
    assert f"also removes or moves {WORKTREE}/.git" in (verdict.reason or "")


PATH_KEYS = "file_path filePath path absolute_path notebook_path target_file filename uri"
SOURCE_KEYS = "source src from old_path oldPath source_path sourcePath"
TARGET_KEYS = (
    "destination dest dst target to new_path newPath destination_path destinationPath target_path relative_path "
    "relativePath paths files file filepath"
)
CONTENT_KEYS = "content contents new_string newString new_str file_text edits patch diff text new_source replace insert"
GIT_PATH_KEYS = "repo_path repoPath repository_path repositoryPath repository repo path"
GIT_WORD_KEYS = (
    "mode operation action subcommand args branch_name branchName branch branchOrPath target revision commit ref name "
    "tagName"
)


def test_a_tool_may_name_a_path_or_a_word_by_any_usual_key() -> None:
    def texts(tool: str, keys: str, value: object = "a", **more: object) -> list[str]:
        """The keys with which the tool has the value as its text."""
        return [key for key in keys.split() if list(read_tool(tool, {key: value, **more}, {}).texts) == ["a"]]

    every = f"{PATH_KEYS} {SOURCE_KEYS} {TARGET_KEYS}"
    assert texts("move", every) == every.split()
    assert texts("move", every, ["a"]) == every.split()
    assert texts("copy", every) == f"{PATH_KEYS} {TARGET_KEYS}".split()
    assert texts("x", every, text="y") == texts("x", every, [{"uri": "a"}], diff="") == PATH_KEYS.split()
    assert [key for key in CONTENT_KEYS.split() if read_tool("x", {"path": "a", key: 1}, {}).texts] == (
        CONTENT_KEYS.split()
    )
    verbs = [
        "delete",
        "remove",
        "move",
        "rename",
        "rmdir",
        "write",
        "create",
        "copy",
        "edit",
        "append",
        "replace",
        "insert",
        "patch",
        "mkdir",
        "make_dir",
    ]
    assert [verb for verb in verbs if read_tool(f"Do_{verb.title()}", {"file": "a"}, {}).texts] == verbs
    assert [verb for verb in verbs if read_tool(f"do_{verb}", {"file": "a"}, {}).is_tree] == verbs[:5]
    git = {"git_x": {"git": ["x"]}}
    assert [key for key in GIT_PATH_KEYS.split() if read_tool("git_x", {key: "/r"}, git).directory] == (
        GIT_PATH_KEYS.split()
    )
    assert [key for key in GIT_WORD_KEYS.split() if read_tool("git_x", {key: "b"}, git).git == ["x", "b"]] == (
        GIT_WORD_KEYS.split()
    )
    options = ["list", "show", "delete", "abort", "continue"]
    assert read_tool("git_x", {"args": options}, git).git == ["x", *(f"--{option}" for option in options)]
    servers = ["github", "gitlab", "bitbucket", "gitea"]
    assert [read_tool(f"mcp__{server}__write", {"path": "a"}, {}).texts for server in servers] == [()] * 4


def test_a_row_for_a_tool_without_fields_is_a_shell() -> None:
    tools: dict[str, Any] = {"run": {}, "look": {"is": "read"}, "some_git": {"git": ["add"]}}
    for key in ("command", "cmd", "script"):
        assert described(read_tool("Run", {key: "ls"}, tools)) == {"kind": "shell", "texts": ["ls"]}
    assert read_tool("LOOK", {"uri": "a"}, tools).texts == ["a"]
    assert described(read_tool("some_git", {}, tools)) == {"kind": "other:some_git", "git": ["add"]}
    with pytest.raises(ValueError, match="command, cmd, script"):
        read_tool("run", {}, tools)


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
        ("git_commit", {"path": "../two"}, "own-worktree-only"),
    ],
)
def test_a_path_of_a_tool_is_seen_from_its_directory(tool: str, given: object, rule: str) -> None:
    assert judge_tool(tool, given).rule == rule


@pytest.mark.parametrize("given", [{}, {"command": ["ls", 3]}, {"command": []}, 3, None, {"args": ["ls"]}])
def test_a_shell_without_a_command_is_an_error_that_names_it(given: object) -> None:
    with pytest.raises(ValueError, match="the input of Bash has no command \\(command\\)"):
        read_tool("Bash", given, defaults()["tools"])


def test_rules_name_tools_and_a_fetch_without_an_address_is_judged() -> None:
    def rule(tool: str, **fields: object) -> list[dict[str, object]]:
        return [{"name": "mine", "tools": [tool], "reason": "Not <branch> in {worktree}.", **fields}]

    assert judge_tool("WebFetch", {}, rules=rule("fetch")).rule == "mine"
    assert judge_tool("WebFetch", {"url": "https://a.b/c"}, rules=rule("fetch", paths=["https://a.b/*"])).rule == "mine"
    assert judge_tool("WebFetch", {"url": "https://a.c"}, rules=rule("fetch", paths=["https://a.b/*"])).allowed
    assert judge_tool("curl", {"command": "curl -s a.b/c"}, rules=rule("fetch", paths=["*a.b*"])).rule == "mine"
    assert judge_tool("x", {}, rules=rule("other")).rule == "mine"
    assert judge_tool("mcp__a__b", {}, rules=rule("other")).allowed
    assert judge_tool("mcp__a__b", {}, rules=rule("mcp:a/*")).rule == "mine"
    assert judge_tool("Read", {"path": "a"}, rules=rule("read")).reason == (
        f"[liza] not run: read {WORKTREE}/a: Not task/cart in {WORKTREE}."
    )
    assert judge_tool("Read", {}, rules=rule("read")).rule == "mine"
    assert judge_tool("Read", {"path": "a"}, "planner", rule("read", roles=["coder"])).allowed
    assert judge_tool("Read", {"path": "a"}, rules=rule("read", areas=["crew"])).rule == "mine"
    assert judge("ls", rules=rule("shell", areas=["crew"])).allowed
    assert judge("ls ..", rules=rule("shell", areas=["own"])).rule == "mine"
    assert judge("cd ..; ls", rules=rule("shell", areas=["own"])).allowed
    assert judge('cd "$X" && ls', rules=rule("shell", commands=["ls"], areas=["unknown"])).rule == "mine"
    assert judge('cd "$X" && ls', rules=rule("shell", commands=["ls"], areas=["own", "crew"])).allowed


GIT: list[tuple[str, str, str]] = [
    ("git -C x -c User.Name=Y --git-dir z log -C", "git @-c=user.name=Y @--git-dir=z log -C", OWN),
    ("git --no-pager -p log", "git @--no-pager= @-p= log", OWN),
    ("git -c a.B=C=D", "git @-c=a.b=C=D", OWN),
    ("git -c", "git @-c=", OWN),
    ("git --namespace n --super-prefix p log", "git @--namespace=n @--super-prefix=p log", OWN),
    ("git --attr-source a --exec-path e log", "git @--attr-source=a @--exec-path=e log", OWN),
    ("git --config-env c log", "git @--config-env=c log", OWN),
    ("git --work-tree=.. add a", "git @--work-tree=.. add a", CREW),
    ("git --work-tree .. add a", "git @--work-tree=.. add a", CREW),
    ("git --git-dir=/tmp/x/.git add a", "git @--git-dir=/tmp/x/.git add a", ELSEWHERE),
    ("git --git-dir=/tmp/x/.git --work-tree=. add a", "git @--git-dir=/tmp/x/.git @--work-tree=. add a", UNKNOWN),
    ('git --git-dir="$X" add a', "git @--git-dir=… add a", UNKNOWN),
    ("git -C .. -C .. add a", "git add a", ELSEWHERE),
    ("git -C .. --git-dir=/tmp/y add a", "git @--git-dir=/tmp/y add a", ELSEWHERE),
    ('git -C "$X" --git-dir=/tmp/y add a', "git @--git-dir=/tmp/y add a", UNKNOWN),
    ("GIT_DIR=../x git add a", "git @--git-dir=../x add a", CREW),
    ("GIT_COMMON_DIR=../x git add a", "git @--git-dir=../x add a", CREW),
    ("GIT_WORK_TREE=../x git add a", "git @--work-tree=../x add a", CREW),
    ("GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_PARAMETERS=x git log", "git @-c=env.GIT_CONFIG_PARAMETERS=x log", OWN),
    ("GIT_EXEC_PATH=/tmp git log", "git @-c=env.GIT_EXEC_PATH=/tmp log", OWN),
    ("GIT_CONFIG_GLOBAL=/a GIT_CONFIG_SYSTEM=/b git log",
     "git @-c=env.GIT_CONFIG_GLOBAL=/a @-c=env.GIT_CONFIG_SYSTEM=/b log", OWN),
    ("GIT_CONFIG_COUNT=1 git log", "git @-c=env.GIT_CONFIG_COUNT=1 log", OWN),
    ("git checkout README.md x", "git checkout -- README.md x", OWN),
    ("git checkout -f README.md", "git checkout -f README.md", OWN),
    ("git checkout README.md -- x", "git checkout README.md -- x", OWN),
    ("git checkout src/* README.md", "git checkout src/* README.md", OWN),
    ("git checkout x README.md", "git checkout x README.md", OWN),
    ("git checkout", "git checkout", OWN),
    ("git switch README.md", "git switch README.md", OWN),
]  # fmt: skip


@pytest.mark.parametrize(("command", "normal", "area"), GIT, ids=repr)
def test_options_of_git_are_apart_from_those_of_its_subcommand(command: str, normal: str, area: str) -> None:
    act = next(act for act in acts(command) if act.words[:1] == ("git",))
    text = " ".join(act.words).replace(MARK, "@")
    for mark in (ANY, MANY):
        text = text.replace(mark, "…")
    assert (text.replace(FILES, "*"), act.area) == (normal, area)


REQUESTS: list[tuple[str, str]] = [
    ("curl -d x https://H.example/Y", "@method=POST @url=h.example/y"),
    ("curl -sXPUT https://h.example:8/y", "@method=PUT @url=h.example/y"),
    ("curl -d - -s h.example", "@method=POST @url=h.example/"),
    ("curl --req DELETE https://ann:b@h.example./y", "@method=DELETE @url=h.example/y"),
    ("curl -G -d x h.example", "@method=GET @url=h.example/"),
    ("curl -I -d x h.example", "@method=GET @url=h.example/"),
    ("curl --head h.example -T a", "@method=GET @url=h.example/"),
    ("curl -T a h.example", "@method=PUT @url=h.example/"),
    ("curl --upload a h.example", "@method=PUT @url=h.example/"),
    ("curl --data-b=x h.example", "@method=POST @url=h.example/"),
    ("curl --json x h.example; ", "@method=POST @url=h.example/"),
    ("curl -d 'query { x }' https://h.example/graphql", "@method=GET @url=h.example/graphql"),
    ("curl -d 'mutation { x }' https://h.example/graphql", "@method=POST @url=h.example/graphql"),
    ("curl -d @x https://h.example/graphql", "@method=POST @url=h.example/graphql"),
    ('curl -d "$X" https://h.example/graphql', "@method=POST @url=h.example/graphql"),
    ("curl -d a https://h.example/graphql h.example", "@method=POST @url=h.example/graphql @url=h.example/"),
    ("curl $X https://h.example", "@method=… @url=h.example/"),
    ('curl "$X" -X GET https://h.example', "@method=GET @url=h.example/"),
    ("curl -X GET -X POST https://h.example", "@method=POST @url=h.example/"),
    ("curl -X options -X get h.example", "@method=OPTIONS @url=h.example/"),
    ("curl -X head h.example", "@method=HEAD @url=h.example/"),
    ("curl localhost:8000/a.b ./x $X/a.b -.c", ""),
    ("curl --url=https://h.example", "@method=GET @url=h.example/"),
    ("wget --post-data x h.example", "@method=POST @url=h.example/"),
    ("wget --body-f x h.example", "@method=POST @url=h.example/"),
    ("wget --method=put h-i.example", "@method=PUT @url=h-i.example/"),
    ("wget2 h.example", "@method=GET @url=h.example/"),
    ("http PUT h.example a=b", "@method=PUT @url=h.example/"),
    ("http get h.example a=b", "@method=GET @url=h.example/"),
    ("http h.example a==b a:b x", "@method=GET @url=h.example/"),
    ("http h.example a=b", "@method=POST @url=h.example/"),
    ("https h.example a:=1", "@method=POST @url=h.example/"),
    ("xh h.example a@x", "@method=POST @url=h.example/"),
    ("http --raw GET h.example", "@method=POST @url=h.example/"),
    ("xhs --raw=x h.example/a", "@method=POST @url=h.example/a"),
    ("curlie POST h.example", "@method=POST @url=h.example/"),
    ("gh api repos/a", "@method=GET"),
    ("gh -R a/b api x -f a=b", "@method=POST"),
    ("gh api x --method patch -f a=b", "@method=PATCH"),
    ("gh api x -Xget -f a=b", "@method=GET"),
    ("gh api x --input y", "@method=POST"),
    ("gh api x -Fa=b", "@method=POST"),
    ("gh api x --raw-field a=b", "@method=POST"),
    ("gh api x --field=a=b", "@method=POST"),
    ("gh api graphql -f query='query'", "@method=GET"),
    ("gh api graphql -f query='mutation'", "@method=POST"),
    ("gh pr list", ""),
    ("glab api -X PUT x", "@method=PUT"),
    ("kill -1 5", ""),
    ("kill -9 -1", "@target=all"),
    ("kill -- -1", "@target=all"),
    ("kill 5", ""),
]


@pytest.mark.parametrize(("command", "marks"), REQUESTS, ids=repr)
def test_a_command_is_marked_with_what_its_options_mean_together(command: str, marks: str) -> None:
    act = next(act for act in acts(command) if act.tool == SHELL)
    assert " ".join(word for word in act.words if word[:1] == MARK).replace(ANY, "…").replace(MARK, "@") == marks


PATTERNS: list[tuple[str, list[str], int]] = [
    ("a", ["a", "b"], YES),
    ("a|c", ["c"], YES),
    ("a b", ["a"], NO),
    ("a b", ["a", "-x", "b", "c"], YES),
    ("a b $", ["a", "b", "c"], NO),
    ("a b $", ["a", "b"], YES),
    ("a b $", ["a", "b", MANY], MAYBE),
    ("a $", ["a", ANY], MAYBE),
    ("a $", ["a", "--", ANY], NO),
    ("a b", ["a", ANY], MAYBE),
    ("a b", ["a", "--", ANY], MAYBE),
    ("a b c", ["a", ANY], MAYBE),
    ("a *", ["a", ANY], YES),
    ("a * c", ["a", ANY], MAYBE),
    ("a * c", ["a", "b", "d"], NO),
    ("a b*|c?", ["a", "cd"], YES),
    ("a b", ["a", f"b{ANY}"], MAYBE),
    ("a -f", ["a", "b", "-f"], YES),
    ("a -f", ["a", "b"], NO),
    ("a -f", ["a", MANY], MAYBE),
    ("a -f", ["a", "--", "-f"], NO),
    ("a -f", ["a", "-xf"], YES),
    ("a -f", ["a", "-C/f"], NO),
    ("a -f", ["a", "-f/x"], YES),
    ("a -f", ["a", "--f"], NO),
    ("a --", ["a", "--", "b"], YES),
    ("a --", ["a", "b"], NO),
    ("a --force", ["a", "--force=x"], YES),
    ("a --force", ["a", "--for"], YES),
    ("a --force", ["a", "--fo"], NO),
    ("a --force", ["a", "-force"], NO),
    ("a --force", ["a", "--forces"], NO),
    ("a -force", ["a", "-force"], YES),
    ("a --x=y*", ["a", "--x=yz"], YES),
    ("a --x=y*", ["a", f"--x=y{ANY}"], NO),
    ("a -o|--out", ["a", "--out"], YES),
    ("a @-c=x*", ["a", f"{MARK}-c=xy", "b"], YES),
    ("a @-c=x*", ["a", "@-c=xy"], NO),
    ("a $", ["a", "@-c=xy"], NO),
    ("a b @x|@y", ["a", "b", f"{MARK}y"], YES),
    ("a b @x|@y @z", ["a", "b", f"{MARK}y"], NO),
    ("a @-c=x*", ["a", f"{MARK}-c=z"], NO),
    ("a @-c=x*", ["a"], NO),
    ("a <branch>", ["a", "task/cart"], YES),
    ("a <branch>", ["a", "task/other"], NO),
    ("a <commit>", ["a", "HEAD~2"], YES),
    ("a <commit>", ["a", "1234567"], YES),
    ("a <commit>", ["a", "123456"], NO),
    ("a <commit>", ["a", "f" * 40 + "^"], YES),
    ("a <commit>", ["a", "f" * 41], NO),
    ("a <commit>", ["a", "feature"], NO),
    ("a <commit>", ["a", "@{1}"], YES),
    ("a <commit>", ["a", "@"], YES),
    ("a <commit>", ["a", "@~2"], YES),
    ("a <commit>", ["a", "@{-1}"], NO),
    ("a <commit>", ["a", "MERGE_HEAD"], YES),
    ("a <commit>", ["a", "ORIG_HEAD^"], YES),
    ("a <commit>", ["a", "FETCH_HEAD"], YES),
    ("a <commit>", ["a", f"HEAD{ANY}"], NO),
    ("*", [ANY], NO),
    ("a b", [ANY, "b"], MAYBE),
    ("a b", [ANY, "c"], NO),
    ("a *", [MANY], NO),
    ("a -f", [MANY], MAYBE),
    ("a -f", [MANY, "x"], NO),
    ("", ["a"], NO),
]


@pytest.mark.parametrize(("pattern", "words", "result"), PATTERNS)
def test_a_pattern_concerns_a_command(pattern: str, words: list[str], result: int) -> None:
    assert match_command(CommandPattern(pattern), Command(words, {}, "task/cart")) == result


def test_a_command_in_another_language_concerns_only_patterns_that_name_arguments() -> None:
    for pattern, result in {"a": NO, "a *": NO, "a b": YES, "a -f": NO, "a * b": NO}.items():
        assert match_command(CommandPattern(pattern), Command(["a", "b", "c"], {}, is_code=True)) == result
    assert match_command(CommandPattern("a <branch>"), Command(["a", ""], {})) == NO


def test_values_of_options_are_no_arguments() -> None:
    values = {"a": ["-o"], "a b": ["-p"]}
    assert Command(["a", "b", "-o", "x", "-p", "y", "z"], values).arguments == ["b", "z"]
    assert Command(["a", "c", "-o", "x", "-p", "y"], values).arguments == ["c", "y"]
    assert Command(["a", f"{MARK}-c=x", "-p", "b", "c"], values).arguments == ["b", "c"]
    assert positionals(["-", "-x", "--", "-y", "--"]) == ["-", "-y", "--"]
    assert option_values(["-o", "a", "-ob", "--out", "c", "--out=d", "-xo", "e", "--xo", "f"], ("-o", "--out")) == [
        "a", "b", "c", "d", "e",
    ]  # fmt: skip
    assert option_values(["-o"], ("-o",)) == []
    assert option_values(["-1o", "a", "-xo/", "b"], ("-o",)) == []
    assert option_values(["-opt", "a", "-optx"], ("-opt",)) == ["a"]


@pytest.mark.parametrize(
    ("words", "row", "expected"),
    [
        (["w", "-x", "a", "-y"], {}, ([], ["a", "-y"])),
        (["w", "-n", "5", "a"], {"values": ["-n"]}, ([], ["a"])),
        (["w", "5", "-x", "a"], {"skip": 1}, ([], ["a"])),
        (["w", "--", "5", "a"], {"skip": 1}, ([], ["a"])),
        (["w", "--", "-a"], {}, ([], ["-a"])),
        (["w", "A=1", "-x", "B=2", "a", "C=3"], {"assignments": True}, (["A=1", "B=2"], ["a", "C=3"])),
        (["w", "--", "A=1", "a"], {"assignments": True}, (["A=1"], ["a"])),
        (["w", "A=1", "a"], {}, ([], ["A=1", "a"])),
        (["w", "A=1", "1=2", "a"], {"assignments": True}, (["A=1"], ["1=2", "a"])),
        (["w", "-", "a"], {}, ([], ["-", "a"])),
        (["w", "-n"], {"values": ["-n"]}, ([], [])),
        (["w"], {}, ([], [])),
        (["w", "--"], {"skip": 1, "assignments": True}, ([], [])),
    ],
)
def test_the_command_of_a_wrapper_follows_its_options(
    words: list[str], row: dict[str, Any], expected: tuple[list[str], list[str]]
) -> None:
    assert split_wrapper(words, row) == expected


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git checkout @{-1}", "no-checkout-of-branches"),
        ("git branch @other", "no-other-refs"),
        ("git tag @v1", "no-other-refs"),
        (f"git tag {MARK}v1", "no-other-refs"),
        ("git checkout @", "own-branch"),
        ("git checkout @~1", "own-branch"),
        ("git checkout @ README.md", "own-branch"),
    ],
)
def test_a_word_of_a_command_is_not_taken_for_a_mark(command: str, rule: str) -> None:
    assert judge(command).rule == rule
    assert judge_tool("git_tag", {"tagName": f"{MARK}v1"}).allowed is False


def test_an_interpreter_is_found_by_its_name() -> None:
    table = ShellTable({"code": {"python*": ["-c"], "awk": []}})
    assert (table.code_options("python3.11"), table.code_options("awk"), table.code_options("x")) == (["-c"], [], None)


@pytest.mark.parametrize(
    ("directory", "path", "joined"),
    [
        ("/a", "b/./c//d", "/a/b/c/d"),
        ("/a", "../../b", "/b"),
        ("/a", "/b/..", "/"),
        ("/a", f"{ANY}/b", f"{ANY}/b"),
        ("/a", f"{MANY}x/../b", f"{ANY}x/{ANY}/b"),
        ("", "b", f"{ANY}/b"),
        ("", "../b", f"{ANY}/{ANY}/b"),
        ("/a", f"b/{FILES}/../c", f"/a/b/{FILES}/{ANY}/c"),
    ],
)
def test_a_path_is_joined_to_a_directory(directory: str, path: str, joined: str) -> None:
    assert join_path(directory, path) == joined


def test_an_area_is_that_of_the_real_directory() -> None:
    session = facts(real=lambda path: path.replace("/link", ROOT))
    paths = {WORKTREE: OWN, f"{WORKTREE}/x": OWN, SLOTS: CREW, f"{SLOTS}/onetwo": CREW, f"{ROOT}/x": CREW}
    paths |= {"/link/a": CREW, "/tmp": ELSEWHERE, f"{ROOT}2": ELSEWHERE, "": UNKNOWN, "a": UNKNOWN, f"/{ANY}": UNKNOWN}
    assert {path: session.area_of(path) for path in paths} == paths
    assert facts(worktree="", slots="").area_of(WORKTREE) == ELSEWHERE


def test_without_facts_nothing_is_known_of_a_session() -> None:
    nothing = GuardFacts()
    texts = ("branch", "directory", "home", "role", "root", "slots", "state", "task", "worktree")
    assert {getattr(nothing, name) for name in texts} == {""}
    assert (nothing.variables, nothing.real("/a"), nothing.exists("/")) == ({}, "/a", False)
    assert GuardFacts(root="/r").directory == "/r"
    assert GuardFacts(root="/r", worktree="/w").directory == "/w"
    assert GuardFacts(root="/r", worktree="/w", directory="/d").directory == "/d"

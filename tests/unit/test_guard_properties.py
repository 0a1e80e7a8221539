"""Whatever a command is, the guards judge it; and a command means the same however it is quoted or wrapped."""

from __future__ import annotations

import fnmatch
import shlex
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liza.rules.guards.word_matching import ANY, MAYBE, NO, YES, match_glob
from tests.unit.guard_session import ROOT, SLOTS, WORKTREE, judge, judge_tool

DENIED = [
    ("git", "push"),
    ("git", "-C", ".", "push", "-f"),
    ("git", "checkout", "-b", "other"),
    ("git", "branch", "-D", "main"),
    ("git", "config", "user.name", "x y"),
    ("git", "stash"),
    ("git", "worktree", "add", "../x"),
    ("rm", "-rf", "/home/ann/shop/.liza"),
    ("tee", "/home/ann/.ssh/config"),
    ("cp", "a", "../two/b"),
    ("gh", "pr", "create"),
]
ALLOWED = [
    ("git", "commit", "-m", "git push $x `y`"),
    ("git", "add", "-A"),
    ("git", "log", "--oneline"),
    ("git", "checkout", "--", "a b"),
    ("rm", "-rf", "build"),
    ("echo", "git", "push"),
    ("pytest", "-q"),
    ("grep", "-rn", "git push", "."),
]
FRAGMENTS = st.sampled_from(
    [
        *(
            "git",
            "push",
            " ",
            "\n",
            ";",
            "&&",
            "|",
            "$(",
            ")",
            "`",
            "'",
            '"',
            "\\",
            "<<EOF",
            "EOF",
            "{",
            "}",
            "(",
            "[[",
            "]]",
        ),
        *(
            "$x",
            "${x",
            "$((",
            "))",
            "if ",
            "then ",
            "fi",
            "for i in ",
            "do ",
            "done",
            "case x in ",
            "esac",
            "f() ",
            ">",
        ),
        *("<(", "$'", "#", "=", "*", "?", "~", "eval ", "bash -c ", "xargs ", "find -exec ", "é", "\u202e", "\ufeff"),
        *("\x00", "\r", "\t", "\uf8f0", "cd ", "alias a=", "!", "&", ".git/config", "rm ", "env -S ", "function "),
        *("coproc ", "select ", "@(a|b)", "{a,b}"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(FRAGMENTS, max_size=25).map("".join)))
@example("\ud800 git push")
@example("git push \\")
@example("<<A <<B\n")
@example("a[$(git push)]=1")
@example("{" * 300)
@example("$(" * 3000)
@example("'" * 5001)
@example("x=" + "{a,b}" * 40)
@example("git " + "{push,pull}" * 30)
@example("a=b " * 3000)
@example("f() { f; f; }; f")
@example("f() { g; }; g() { f; }; f")
@example(";".join(f"v{i}=$v{i - 1}$v{i - 1}" for i in range(1, 60)) + "; git $v59")
@example("a=1;a=2;a=3;b=1;b=2;b=3;c=1;c=2;c=3; git $a $b $c $a $b $c")
@example("for i in a b; do " * 20 + "git push" + "; done" * 20)
@example("alias a=b; alias b=a; a")
def test_every_text_is_judged(command: str) -> None:
    judge(command)


INPUTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "path", "file_path", "content", "cmd", "args", "patch", "cwd", "url"])
            | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
TOOLS = st.sampled_from(
    ["Bash", "shell", "Write", "Read", "apply_patch", "mcp__a__b", "str_replace_editor", "write_stdin"]
)


@given(TOOLS, INPUTS)
@example("shell", ["git", "push"])
@example("shell", {"command": ["git", "push"]})
@example("Bash", '{"command": "git push"}')
def test_every_input_is_judged(tool: str, given_input: Any) -> None:
    judge_tool(tool, given_input)


@pytest.mark.parametrize(
    ("tool", "given_input", "rule"),
    [
        ("shell", {"command": ["bash", "-lc", "git push"]}, "no-push"),
        ("shell", {"command": ["git", "push"]}, "no-push"),
        ("exec_command", {"cmd": "git push", "workdir": "/tmp"}, "no-push"),
        ("run_shell_command", {"command": "git push", "description": "x"}, "no-push"),
        ("bash", '{"command": "git push"}', "no-push"),
        ("an_unknown_tool", {"command": "git push"}, "no-push"),
        ("an_unknown_tool", {"command": "git", "args": ["push"]}, "no-push"),
        ("write_stdin", {"session_id": 1, "chars": "git push\n"}, "no-push"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Add File: .git/hooks/x\n+y\n*** End Patch"}, "no-write-in-git"),
        ("apply_patch", {"patchText": "*** Update File: a\n*** Move to: ../two/a\n"}, "no-write-in-other-worktrees"),
        ("Bash", {"command": "apply_patch <<'EOF'\n*** Delete File: .git\nEOF"}, "no-write-in-git"),
        ("str_replace_editor", {"command": "create", "path": ".git/x"}, "no-write-in-git"),
        ("NotebookEdit", {"notebook_path": "/home/ann/shop/a.ipynb"}, "no-write-in-checkout"),
        ("mcp__files__write_file", {"path": "/home/ann/shop/.liza/state.yaml", "content": ""}, "no-write-in-liza"),
        ("mcp__github__push_files", {"branch": "x"}, "no-push-by-server"),
        ("mcp__github__create_pull_request", {}, "no-push-by-server"),
        ("mcp__github__create_or_update_file", {"path": "a"}, "no-push-by-server"),
        ("mcp__claude_ai_GitHub__merge_pull_request", {"number": 1}, "no-push-by-server"),
        ("mcp__gitlab__merge_merge_request", {}, "no-push-by-server"),
        ("mcp__git__git_push", {"repo_path": "."}, "no-push-by-server"),
        ("git_git_push", {"repo_path": "."}, "no-push"),
        ("mcp__git__git_commit", {"repo_path": ROOT, "message": "x"}, "own-worktree-only"),
        ("mcp__git__git_commit", {"repo_path": f"file://{ROOT}/src"}, "own-worktree-only"),
        ("mcp__git__git_add", {"repo_path": f"{SLOTS}/two", "files": ["a"]}, "own-worktree-only"),
        ("mcp__git__git_reset", {"repo_path": "../two"}, "own-worktree-only"),
        ("mcp__git__commit", {"path": ROOT}, "own-worktree-only"),
        ("git-git_commit", {"repoPath": ROOT, "message": "x"}, "own-worktree-only"),
        ("git__git_merge", {"path": "/home/ann/shop", "branch": "x"}, "own-worktree-only"),
        ("mcp__git__git_checkout", {"repo_path": ROOT, "branch_name": "main"}, "no-push-by-server"),
        ("git_git_checkout", {"repo_path": WORKTREE, "branch_name": "main"}, "no-checkout-of-branches"),
        ("mcp__repo__git_create_branch", {"repo_path": WORKTREE, "branch_name": "x"}, "no-other-refs"),
        ("git_git_branch", {"path": WORKTREE, "mode": "delete", "branchName": "x"}, "no-other-branch"),
        ("git_git_stash", {"path": WORKTREE}, "no-shared-stash"),
        ("git_git_tag", {"path": WORKTREE, "mode": "create", "tagName": "v1"}, "no-other-refs"),
        ("git_git_config", {"path": WORKTREE, "args": ["user.name", "Eve"]}, "no-git-config"),
        ("mcp__filesystem__move_file", {"source": "a", "destination": f"{ROOT}/a"}, "no-write-in-checkout"),
        ("mcp__filesystem__move_file", {"source": ROOT, "destination": "b"}, "no-write-in-git"),
        ("mcp__fs__rename_file", {"old_path": "a", "new_path": "../two/a"}, "no-write-in-other-worktrees"),
        ("mcp__fs__delete_directory", {"path": "/home/ann"}, "no-write-in-git"),
        ("mcp__fs__create_directory", {"path": f"{ROOT}/x"}, "no-write-in-checkout"),
        ("rename_file", {"from": "a", "to": f"{ROOT}/.git/x"}, "no-write-in-git"),
        ("move", {"source": "/home/ann", "destination": "/tmp/x"}, "no-write-in-git"),
        ("Bash", {"command": "git commit -am x", "cwd": "/home/ann/shop"}, "own-worktree-only"),
    ],
)
def test_a_tool_of_any_program_is_denied(tool: str, given_input: Any, rule: str) -> None:
    verdict = judge_tool(tool, given_input)
    assert (verdict.allowed, verdict.rule) == (False, rule)


@pytest.mark.parametrize(
    ("tool", "given_input"),
    [
        ("str_replace_editor", {"command": "view", "path": ".git/config"}),
        ("TodoWrite", {"todos": []}),
        ("mcp__github__get_issue", {"number": 3}),
        ("mcp__github__list_pull_requests", {}),
        ("mcp__git__git_commit", {"repo_path": WORKTREE, "message": "x"}),
        ("mcp__git__git_commit", {"message": "x"}),
        ("mcp__git__git_add", {"repo_path": ".", "files": ["a", "src/b"]}),
        ("mcp__git__git_commit", {"repo_path": "/tmp/clone", "message": "x"}),
        ("mcp__git__git_status", {"repo_path": ROOT}),
        ("mcp__git__git_log", {"repo_path": ROOT, "max_count": 3}),
        ("mcp__git__git_diff_staged", {"repo_path": WORKTREE}),
        ("mcp__git__git_show", {"repo_path": WORKTREE, "revision": "HEAD"}),
        ("git_git_branch", {"repo_path": WORKTREE, "branch_type": "local"}),
        ("git_git_branch", {"path": WORKTREE, "mode": "list"}),
        ("mcp__digit__commit", {"path": ROOT}),
        ("mcp__fs__copy_file", {"source": f"{ROOT}/x", "destination": "x"}),
        ("mcp__fs__read_file", {"path": f"{ROOT}/x"}),
        ("mcp__playwright__browser_navigate", {"url": "http://localhost"}),
        ("write_stdin", {"chars": "y\n"}),
        ("Read", {"file_path": "/home/ann/.ssh/config"}),
        ("an_unknown_tool", {"path": "/home/ann/shop/a"}),
        ("apply_patch", {"input": "*** Add File: src/x\n+git push"}),
        ("Write", {"file_path": "src/x", "content": "git push"}),
        ("WebFetch", {"url": "https://x.y", "prompt": "git push"}),
    ],
)
def test_a_tool_that_does_no_harm_is_allowed(tool: str, given_input: Any) -> None:
    verdict = judge_tool(tool, given_input)
    assert verdict.allowed, verdict.reason


def test_a_pattern_of_many_stars_is_as_fast_as_one() -> None:
    assert match_glob("*" * 900 + "a" + "*" * 90, "b" * 4000) == NO


def quoted(draw: Any, word: str) -> str:
    """A way to write a word in a shell."""
    way = draw(st.sampled_from(["plain", "single", "double", "ansi", "octal", "split", "slashes", "empty"]))
    if way == "double":
        return '"' + "".join("\\" + each if each in '$`"\\' else each for each in word) + '"'
    if way == "ansi":
        return "$'" + "".join(f"\\x{ord(each):02x}" for each in word) + "'"
    if way == "octal":
        return "$'" + "".join(f"\\{ord(each):03o}" for each in word) + "'"
    if way == "split":
        return "".join(shlex.quote(each) + draw(st.sampled_from(["", "''", '""', "\\\n"])) for each in word)
    if way == "slashes":
        return "".join("\\" + each for each in word)
    if way == "empty":
        return "''" + shlex.quote(word) + '""'
    return shlex.quote(word) if way == "plain" else "'" + word.replace("'", "'\\''") + "'"


@st.composite
def written(draw: Any, commands: list[tuple[str, ...]]) -> str:
    """A command, quoted in some way, within other commands."""
    words = draw(st.sampled_from(commands))
    gap = st.sampled_from([" ", "  ", "\t", " \\\n "])
    text = "".join(quoted(draw, word) + draw(gap) for word in words).rstrip(" \t\\\n")
    for _ in range(draw(st.integers(0, 3))):
        text = draw(
            st.sampled_from(
                [
                    f"bash -c {shlex.quote(text)}",
                    f"({text})",
                    f"{{ {text}; }}",
                    f"true && {text}",
                    f"false || {text}",
                    f"ls\n{text}\nls",
                    f"if true; then {text}; fi",
                    f"for i in 1 2; do {text}; done",
                    f"f() {{ {text}; }}; f",
                    f"eval {shlex.quote(text)}",
                    f"bash <<'END'\n{text}\nEND",
                    f"echo $({text})",
                    f"{text} > /dev/null 2>&1",
                    f"timeout 5 bash -c {shlex.quote(text)}",
                    f"echo {shlex.quote(text)} | sh",
                ]
            )
        )
    return str(text)


@settings(max_examples=300, deadline=None)
@given(written(DENIED))
def test_a_denied_command_is_denied_however_it_is_written(command: str) -> None:
    assert not judge(command).allowed


@settings(max_examples=300, deadline=None)
@given(written(ALLOWED))
def test_an_allowed_command_is_allowed_however_it_is_written(command: str) -> None:
    verdict = judge(command)
    assert verdict.allowed, verdict.reason


@given(st.sampled_from(["$x", '"$x"', "$(x)", "`x`", "${x:-y}", "$1", '"$@"', "pu$x", "{push,x}", "p*", "${x}sh"]))
def test_a_subcommand_that_is_not_known_is_denied(word: str) -> None:
    assert not judge(f"git {word} origin main").allowed
    assert not judge(f"xargs git {word}").allowed


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_a_pattern_matches_as_that_of_a_shell(pattern: str, word: str) -> None:
    assert match_glob(pattern, word) == (YES if fnmatch.fnmatchcase(word, pattern) else NO)


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=5), st.text("ab", max_size=4), st.text("ab", max_size=5))
def test_a_word_with_an_unknown_part_may_match_what_it_may_become(
    pattern: str, start: str, part: str, end: str
) -> None:
    if match_glob(pattern, start + part + end) == YES:
        assert match_glob(pattern, start + ANY + end) in (MAYBE, YES)

"""Whatever a command is, the guards judge it; and a command means the same however it is quoted or wrapped."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liza.guards.rules.acts import MARK, match_glob
from tests.unit.guard_session import ROOT, judge, judge_tool

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
        *("\x00", "\r", "\t", MARK, "cd ", "alias a=", "!", "&", ".git/config", "rm ", "env -S ", "function "),
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
@example("a=b " * 3000)
@example("for i in a b; do " * 20 + "git push" + "; done" * 20)
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
        ("str_replace_editor", {"command": "create", "path": ".git/x"}, "no-write-in-git"),
        ("NotebookEdit", {"notebook_path": "/home/ann/shop/a.ipynb"}, "no-write-in-checkout"),
        ("mcp__files__write_file", {"path": "/home/ann/shop/.liza/state.yaml", "content": ""}, "no-write-in-liza"),
        ("mcp__github__push_files", {"branch": "x"}, "no-push-by-server"),
        ("mcp__github__create_pull_request", {}, "no-push-by-server"),
        ("mcp__github__create_or_update_file", {"path": "a"}, "no-push-by-server"),
        ("mcp__claude_ai_GitHub__merge_pull_request", {"number": 1}, "no-push-by-server"),
        ("mcp__gitlab__merge_merge_request", {}, "no-push-by-server"),
        ("mcp__git__git_push", {"repo_path": "."}, "no-push-by-server"),
        ("git_git_push", {"repo_path": "."}, "no-push-by-server"),
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
    assert not match_glob("*" * 900 + "a" + "*" * 90, "b" * 4000)
    assert not match_glob("*a" * 400 + "b", "a" * 4000)


def quoted(draw: Any, word: str) -> str:
    """A way to write a word in a shell."""
    way = draw(st.sampled_from(["plain", "single", "double", "split", "slashes", "empty"]))
    if way == "double":
        return '"' + "".join("\\" + each if each in '$`"\\' else each for each in word) + '"'
    if way == "split":
        return "".join(shlex.quote(each) + draw(st.sampled_from(["", "''", '""'])) for each in word)
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
                    f"eval {shlex.quote(text)}",
                    f"echo $({text})",
                    f"{text} > /dev/null 2>&1",
                    f"timeout 5 bash -c {shlex.quote(text)}",
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


def fits(pattern: str, word: str) -> bool:
    """Whether a word fits a pattern, the slow and simple way."""
    if not pattern:
        return not word
    if pattern[0] == "*":
        return any(fits(pattern[1:], word[start:]) for start in range(len(word) + 1))
    return bool(word) and pattern[0] in ("?", word[0]) and fits(pattern[1:], word[1:])


@given(st.text("ab/*?.[", max_size=6), st.text("ab/.\n[", max_size=6))
def test_a_word_fits_a_pattern_or_not(pattern: str, word: str) -> None:
    assert match_glob(pattern, word) == fits(pattern, word)

"""Files and tools with which an agent could get around the guards."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.guards import guard_files, session_guards
from liza.guards.rules.guard_rules import GUARDS_FILE, find_rule_errors
from liza.guards.session_guards import SessionGuards
from liza.model.paths import Paths


def _guards(root: Path, role: str = "coder") -> SessionGuards:
    worktree = Paths(root).slot("s1")
    worktree.mkdir(parents=True, exist_ok=True)
    (root / ".liza").mkdir(exist_ok=True)
    home = root / "home"
    loaded = guard_files.load_guards(Paths(root), home)
    return SessionGuards(guard_files.compose_guards(loaded, Paths(root), role, home, task="t1", worktree=str(worktree)))


def test_an_untrusted_denying_rule_removes_no_default(tmp_path: Path) -> None:
    (tmp_path / ".liza").mkdir()
    names = [rule["name"] for rule in guard_files.load_guards(Paths(tmp_path), tmp_path).rules]
    rows = [f'[[rule]]\nname = "{name}"\ncommands = ["never-called"]\nreason = "x"\n' for name in names]
    (tmp_path / ".liza" / "guards.toml").write_text("\n".join(rows))
    data = _guards(tmp_path)
    assert not data.judge("Bash", {"command": "git push --force origin HEAD:main"}, {}).allowed
    assert not data.judge("Write", {"file_path": f"{tmp_path}/.liza/state.yaml", "content": "x"}, {}).allowed


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", '{"rules": 3}', '{"rules": []}', '{"rules": [', "[" * 100_000, "\ud800"),
        *('{"rules": [3]}', '{"rules": [{"commands": ["ls"]}]}', '{"rules": [{"name": "a"}, 3]}'),
        *('{"rules": [{"name": "a"}], "vocabulary": 3}', '{"rules": [{"name": "a"}], "programs": {"wrappers": 3}}'),
        *('{"rules": [{"name": "a"}], "programs": 3}', '{"rules": [{"name": "a"}], "tests": 3}'),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / GUARDS_FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"guards\.json is damaged: .*a person ends this session"):
        session_guards.read_guards(str(tmp_path))


def test_the_slowest_possible_guard_rules_are_judged_quickly(tmp_path: Path) -> None:
    """The longest patterns that are accepted, of stars and marks: a step for each character of the word."""
    patterns = ["ls " + "*?" * 490 for _ in range(20)] + ["ls " + "*" * 990, "ls " + "*a" * 490]
    rows = [
        {"name": "a", "commands": patterns, "reason": "x"},
        {"name": "b", "paths": ["/" + "**/" * 300 + "x"], "reason": "x"},
    ]
    assert find_rule_errors(rows) == []
    guards = SessionGuards({"rules": rows, "worktree": str(tmp_path)})
    command = f"ls {'b' * 4000}$x {'a' * 4000}; echo > /{'a/' * 500}b"
    assert not guards.judge("Bash", {"command": command}, {}).allowed

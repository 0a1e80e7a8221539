"""Files and tools with which an agent could get around the guards."""

from __future__ import annotations

from pathlib import Path

from liza.programs.guards import guard_files, session_guards
from liza.programs.guards.session_guards import SessionGuards
from liza.rules.paths import Paths


def _guards(root: Path, role: str = "coder") -> SessionGuards:
    worktree = root / ".worktrees" / "t1"
    worktree.mkdir(parents=True, exist_ok=True)
    (root / ".liza").mkdir(exist_ok=True)
    home = root / "home"
    loaded = guard_files.load_guards(Paths(root), home)
    return SessionGuards(guard_files.compose_guards(loaded, Paths(root), role, home, task="t1", worktree=str(worktree)))


def test_a_denying_rule_that_nobody_trusted_takes_no_default_away(tmp_path: Path) -> None:
    (tmp_path / ".liza").mkdir()
    names = [rule["name"] for rule in _guards(tmp_path).data["rules"]]
    rows = [f'[[rule]]\nname = "{name}"\ncommands = ["never-called"]\nreason = "x"\n' for name in names]
    (tmp_path / ".liza" / "guards.toml").write_text("\n".join(rows))
    data = _guards(tmp_path)
    assert not session_guards.judge_tool(data, "Bash", {"command": "git push --force origin HEAD:main"}, {}).allowed
    assert not session_guards.judge_tool(
        data, "Write", {"file_path": f"{tmp_path}/.liza/state.yaml", "content": "x"}, {}
    ).allowed

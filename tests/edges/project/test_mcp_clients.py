"""The configuration with which programs start `liza mcp`: what is printed, what is written, and what stays."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from liza.model.errors import Refused, UsageError
from liza.project import mcp_clients
from liza.system.installation import liza_path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_printing_writes_nothing(home: Path) -> None:
    text = mcp_clients.install("claude", is_written=False)
    assert text.startswith(f"{home}/.claude.json:\n")
    entry, _ = json.JSONDecoder().raw_decode(text.partition("\n\n")[2])
    permission = json.loads(text.rpartition("\n\n")[2])
    assert entry["mcpServers"]["liza"]["command"] == str(liza_path())
    assert permission == {"permissions": {"allow": ["mcp__liza"]}}
    assert list(home.iterdir()) == []


def test_the_rest_of_a_json_file_stays(home: Path) -> None:
    file = home / ".claude.json"
    rest = {"numStartups": 3, "mcpServers": {"other": {"command": "é"}}, "projects": {"/a": {"x": [1, 2]}}}
    file.write_text(json.dumps(rest, indent=4, ensure_ascii=False))
    file.chmod(0o600)
    assert "starts" in mcp_clients.install("claude", is_written=True)
    text = file.read_text()
    document = json.loads(text)
    assert document["mcpServers"].pop("liza")["args"] == ["mcp"]
    assert document == rest
    assert '\n    "numStartups"' in text
    assert "é" in text
    assert file.stat().st_mode & 0o777 == 0o600
    assert "has it already" in mcp_clients.install("claude", is_written=True)
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{"permissions": {"allow": ["mcp__liza"]}}\n'),
        ('{"model": "m"}', '{"permissions": {"allow": ["mcp__liza"]}, "model": "m"}'),
        ('{"permissions": {"deny": ["Bash"]}}', '{"permissions": {"allow": ["mcp__liza"], "deny": ["Bash"]}}'),
        ('{"permissions": {"allow": []}}', '{"permissions": {"allow": ["mcp__liza"]}}'),
        (
            '{\r\n\t"permissions" : {"allow": [\r\n\t\t"Bash(git log:*)" ]},\r\n\t"é": 1.50 }',
            '{\r\n\t"permissions" : {"allow": [\r\n\t\t"mcp__liza",\r\n\t\t"Bash(git log:*)" ]},\r\n\t"é": 1.50 }',
        ),
    ],
)
def test_the_permission_for_the_tools_of_liza_is_added(home: Path, before: str, after: str) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(before.encode())
    said = mcp_clients.install("claude", is_written=True).splitlines()
    assert said[1] == f"{file} lets claude call the tools of Liza, and no others, without a question now: mcp__liza"
    assert file.read_bytes().decode() == after
    assert mcp_clients.install("claude", is_written=True).splitlines()[1] == f"{file} has it already"
    assert file.read_bytes().decode() == after


def test_the_rest_of_a_toml_file_stays(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    file = tmp_path / "codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "o"')
    mcp_clients.install("codex", is_written=True)
    text = file.read_text()
    assert text.startswith('# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "o"\n')
    assert tomllib.loads(text)["mcp_servers"]["liza"] == {"command": str(liza_path()), "args": ["mcp"]}
    assert "has it already" in mcp_clients.install("codex", is_written=True)


@pytest.mark.parametrize(
    ("program", "name", "text"),
    [
        ("claude", ".claude.json", '{"a": 1, // mine\n}'),
        ("claude", ".claude.json", '{"mcpServers": []}'),
        ("claude", ".claude.json", "\udcff\udcfe"),
        ("claude", ".claude/settings.json", '{"permissions": {"allow": "Bash"}}'),
        ("codex", ".codex/config.toml", "broken ["),
        ("codex", ".codex/config.toml", "mcp_servers = 5"),
        ("codex", ".codex/config.toml", '[mcp_servers.liza]\ncommand = "mine"\n'),
    ],
)
def test_a_file_that_would_lose_something_is_left_alone(home: Path, program: str, name: str, text: str) -> None:
    file = home / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(Refused, match="is left as it is") as refused:
        mcp_clients.install(program, is_written=True)
    assert "Add this:" in refused.value.message
    assert file.read_text(errors="surrogateescape") == text


def test_every_row_can_be_printed_and_written(home: Path) -> None:
    rows = tomllib.loads(mcp_clients.ROWS.read_text())
    assert {"claude", "codex", "gemini", "opencode", "copilot"} <= set(rows)
    for name in rows:
        assert "mcp" in mcp_clients.install(name, is_written=False)
        mcp_clients.install(name, is_written=True)
        assert mcp_clients.load_row(name).path.is_file()
        assert mcp_clients.load_row(name).command == [str(liza_path()), "mcp"]
    with pytest.raises(UsageError, match="claude"):
        mcp_clients.install("claudee", is_written=True)

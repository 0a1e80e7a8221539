"""The files of guard rules: those that come with Liza, and the project's ``.liza/guards.toml``.

A project's rules are tried first. Until a person trusts the file with its present contents, its allowing rules are left
out: an agent can write the file, and must not give itself rights.
"""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from liza.guards.rules.guard_rules import GUARDS_FILE, GUARDS_TOML, find_rule_errors, find_tool_errors
from liza.model.errors import UsageError
from liza.model.paths import Paths, branch_of, role_of, state_directory
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable, field
from liza.programs.presets import preset_table
from liza.programs.session.run_directory import RunDir
from liza.system import atomic, crash_points, untrusted_files

BUILT_IN = Path(__file__).with_name("guards.toml")
_LARGEST = 1 << 18  # maximum file size, in bytes


class _GuardFile(Value, forbid_unknown_fields=True):
    rule: tuple[Any, ...] = ()
    tools: dict[str, Any] = field(default_factory=dict)


class LoadedGuards(Value):
    """Rules in the order in which they are tried, the names of tools, what is known about programs, and notices."""

    rules: tuple[dict[str, Any], ...]
    tools: dict[str, dict[str, Any]]
    programs: dict[str, Any]
    notices: tuple[str, ...] = ()


def load_guards(paths: Paths, home: Path) -> LoadedGuards:
    """Return the guards of a crew. Raises UsageError; it names the file, the rule and the field. NotRegularFile."""
    built_in, file = _read_built_in(), paths.liza / GUARDS_TOML
    own = read_guard_file(file)
    rules, tools, notice = own["rule"], own["tools"], ""
    # A rule of the project replaces the default with its name.
    names = {row["name"] for row in rules}
    if (rules or tools) and not preset_table.is_trusted(file, home):
        left_out = [row["name"] for row in rules if row.get("allow")] + [f"tools.{name}" for name in tools]
        # A denying rule counts, and takes no default away: that would give a right.
        rules, tools, names = [row for row in rules if not row.get("allow")], {}, set()
        if left_out:
            rights = f"gives agents rights ({', '.join(left_out)}); ignored until: {preset_table.TRUST_COMMAND}"
            notice = f".liza/{GUARDS_TOML} {rights}"
    defaults = [row for row in built_in["rule"] if row["name"] not in names]
    tools = {**built_in["tools"], **tools}
    return LoadedGuards((*rules, *defaults), tools, built_in["shell"], (notice,) if notice else ())


@cache
def _read_built_in() -> dict[str, Any]:
    return tomllib.loads(BUILT_IN.read_text(encoding="utf-8"))


def read_guard_file(file: Path) -> dict[str, Any]:
    """Return ``rule`` and ``tools`` of a project's file, if it exists. Raises UsageError, NotRegularFile."""
    try:
        data = untrusted_files.read_if_exists(file, _LARGEST, follow_links=True) or b""
        document = tomllib.loads(data.decode())
        content = msgspec.convert(document, decodable(_GuardFile))
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise _file_error(file, describe_decode_error(error, _GuardFile)) from error
    for message in [*find_rule_errors(content.rule), *find_tool_errors(content.tools)]:
        raise _file_error(file, message)
    return {"rule": list(content.rule), "tools": content.tools}


def _file_error(file: Path, reason: str) -> UsageError:
    return UsageError(f"{file}: {reason}", f"${{EDITOR:-vi}} {shlex.quote(str(file))}")


def compose_guards(
    loaded: LoadedGuards,
    paths: Paths,
    role: str,
    home: Path,
    *,
    task: str | None = None,
    worktree: str = "",
    tests: str | None = None,
    on_error: str = "deny",
    is_confined: bool = False,
) -> dict[str, Any]:
    """Return the contents of ``guards.json`` for a session. ``is_confined``: it runs in a box."""
    return {
        "on_error": on_error,
        "role": role,
        "branch": branch_of(task) if task and role == "coder" else None,
        "root": str(paths.root),
        "slots": str(paths.slots),
        "worktree": worktree,
        "home": str(home),
        "state": str(state_directory(os.environ, home)),
        "confined": is_confined,
        "tests": tests,
        "rules": list(loaded.rules),
        # Other names than in the files of earlier versions, whose sessions may go on: their tables had other fields.
        "vocabulary": loaded.tools,
        "programs": loaded.programs,
    }


def compose_for_run(
    run_dir: RunDir, loaded: LoadedGuards, home: Path, tests: str | None = None, on_error: str = "deny"
) -> dict[str, Any]:
    """Return the contents of ``guards.json`` for a run. Raises OSError, LizaError."""
    record = run_dir.read_record()
    own: dict[str, Any] = {}
    if record is not None:
        own = {"task": record.task, "worktree": record.worktree, "is_confined": record.is_confined}
    return compose_guards(loaded, run_dir.paths, role_of(run_dir.agent), home, tests=tests, on_error=on_error, **own)


def install_guards(run_dir: RunDir, loaded: LoadedGuards, home: Path, tests: str | None, on_error: str) -> None:
    """Write the guards of a session into its run directory. Raises OSError, LizaError."""
    data = compose_for_run(run_dir, loaded, home, tests, on_error)
    crash_points.point("launch", "guards")
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    atomic.write(run_dir.path / GUARDS_FILE, text.encode() + b"\n")

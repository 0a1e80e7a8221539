"""The files of guard rules: those that come with Liza, and the project's ``.liza/guards.toml``.

A project's rules are tried first. Until a person trusts the file with its present contents, its allowing rules are left
out: an agent can write the file, and must not give itself rights.
"""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from liza.programs.presets import preset_files
from liza.programs.session.run_directory import RunDir
from liza.rules.errors import UsageError
from liza.rules.guards.guard_paths import GUARDS_FILE, GUARDS_TOML
from liza.rules.guards.guard_rules import find_rule_errors
from liza.rules.paths import Paths, branch_of, role_of, state_directory
from liza.rules.value_classes import Value
from liza.system import atomic, crash_points, untrusted_files

BUILT_IN = Path(__file__).parent.with_name("guards.toml")
_LARGEST = 1 << 18  # maximum file size, in bytes
_TOOLS = ("shell", "read", "write", "fetch", "typed")


class LoadedGuards(Value):
    """Rules in the order in which they are tried, the names of tools, what is known about programs, and notices."""

    rules: tuple[dict[str, Any], ...]
    tools: dict[str, dict[str, Any]]
    shell: dict[str, Any]
    notices: tuple[str, ...] = ()


def load_guards(paths: Paths, home: Path) -> LoadedGuards:
    """Return the guards of a crew. Raises UsageError; it names the file, the rule and the field. NotRegularFile."""
    built_in, file = _read_built_in(), paths.liza / GUARDS_TOML
    own = read_guard_file(file)
    names = {row["name"] for row in own["rule"]}
    rules, tools, notices = own["rule"], own["tools"], []
    if (rules or tools) and not preset_files.is_trusted(file, home):
        left_out = [row["name"] for row in rules if row.get("allow")] + [f"tools.{name}" for name in tools]
        rules, tools = [row for row in rules if not row.get("allow")], {}
        # A denying rule counts, and takes no default away: that would give a right.
        names = set()
        if left_out:
            notices.append(
                f".liza/{GUARDS_TOML} gives agents rights ({', '.join(left_out)}); ignored until: "
                f"{preset_files.TRUST_COMMAND}"
            )
    # A rule of the project replaces the default with its name, if it is in effect.
    defaults = [row for row in built_in["rule"] if row["name"] not in names]
    return LoadedGuards((*rules, *defaults), {**built_in["tools"], **tools}, built_in["shell"], tuple(notices))


@cache
def _read_built_in() -> dict[str, Any]:
    return read_guard_file(BUILT_IN, is_built_in=True)


def read_guard_file(file: Path, *, is_built_in: bool = False) -> dict[str, Any]:
    """Return ``rule``, ``tools`` and ``shell`` of a file; they are empty if it does not exist.

    Raises UsageError for the first error, NotRegularFile.
    """
    try:
        data = untrusted_files.read_if_exists(file, _LARGEST, follow_links=True) or b""
        document = tomllib.loads(data.decode())
    except (OSError, ValueError) as error:
        raise _file_error(file, str(error)) from error
    except RecursionError as error:
        raise _file_error(file, "its values are nested too deeply") from error
    sections = ("rule", "tools", "shell") if is_built_in else ("rule", "tools")
    for key in document:
        if key not in sections:
            raise _file_error(file, f"{key}: unknown field; there are [[rule]] and [tools]")
    rows, tools = document.get("rule", []), document.get("tools", {})
    for message in [*find_rule_errors(rows), *_tool_errors(tools)]:
        raise _file_error(file, message)
    return {"rule": rows, "tools": tools, "shell": document.get("shell", {})}


def _tool_errors(tools: object) -> list[str]:
    if not isinstance(tools, dict):
        return ["tools: must be a table, [tools]"]
    errors = []
    for name, row in tools.items():
        where = f"tools.{name}"
        if not isinstance(row, dict):
            errors.append(f"{where}: must be a table, such as {{ is = 'write', key = ['path'] }}")
            continue
        errors += [f"{where}.{key}: unknown field" for key in row if key not in ("is", "key", "patch", "unless", "git")]
        tool = row.get("is", "shell")
        if not isinstance(tool, str) or (tool not in _TOOLS and not tool.startswith(("other:", "mcp:"))):
            errors.append(f"{where}.is: {tool!r} is no tool; there are {', '.join(_TOOLS)}, mcp:… and other:…")
        for key in ("key", "patch", "unless", "git"):
            value = row.get(key, [])
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                errors.append(f"{where}.{key}: must be a list of texts")
        if name != name.casefold():
            errors.append(f"{where}: names are written in small letters")
    return errors


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
    refusals: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the contents of ``guards.json`` for a session.

    ``refusals``: for each event of the program's hooks, the form of a refusal, so that a hook need not read it.
    """
    return {
        "on_error": on_error,
        "role": role,
        "task": task,
        "branch": branch_of(task) if task and role == "coder" else None,
        "root": str(paths.root),
        "slots": str(paths.slots),
        "worktree": worktree,
        "home": str(home),
        "state": str(state_directory(os.environ, home)),
        "tests": tests,
        "rules": list(loaded.rules),
        "tools": loaded.tools,
        "shell": loaded.shell,
        "refusals": refusals or {},
    }


def install_guards(
    run_dir: RunDir,
    loaded: LoadedGuards,
    home: Path,
    tests: str | None,
    on_error: str,
    refusals: Mapping[str, Any] | None = None,
) -> None:
    """Write the guards of a session into its run directory. Raises OSError, LizaError."""
    record = run_dir.read_record()
    data = compose_guards(
        loaded,
        run_dir.paths,
        role_of(run_dir.agent),
        home,
        task=record.task if record else None,
        worktree=record.worktree if record else "",
        tests=tests,
        on_error=on_error,
        refusals=refusals,
    )
    crash_points.point("launch", "guards")
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    atomic.write(run_dir.path / GUARDS_FILE, text.encode() + b"\n")

"""Install Liza's hooks for one session: arguments, environment and files of the run; nothing in the person's home.

Files that a program accepts by a flag or a variable are in the run's directory. If the program reads only a file in the
worktree, ``settings_section`` adds Liza's part to it and removes it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from liza.programs.hooks import settings_section
from liza.programs.hooks.hook_templates import (
    TEMPLATES,
    HookFile,
    HookTemplate,
    fill_form,
    list_providers,
    load_template,
)
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.rules.value_classes import Value, field
from liza.system import atomic


class InstalledHooks(Value):
    """What the hooks need for one run.

    ``args`` and ``env`` are for the command. ``env_objects`` are variables that hold JSON objects; their present values
    are merged. ``files`` are in the worktree (relative), and must be kept out of commits. ``reason`` says why the hooks
    could not be installed.
    """

    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    env_objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    reason: str | None = None

    def apply_to(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the session's environment with the hooks' variables; objects in present variables are merged, not
        replaced."""
        merged = {
            name: json.dumps(merge_objects(_parse_object(env.get(name, "")), value))
            for name, value in self.env_objects.items()
        }
        return {**env, **self.env, **merged}


def install_hooks(preset: Preset, worktree: Path, run_dir: RunDir, liza: Path) -> InstalledHooks:
    """Install the hooks of ``preset`` for one run; ``liza`` is the absolute path of the command that they call.

    Do nothing if its hooks are informational, or there is no template. Raises OSError, LizaError.
    """
    if preset.hooks.informational or preset.hooks.provider not in list_providers():
        return InstalledHooks()
    template = load_template(preset.hooks.provider)
    argv = [str(liza), "hook", preset.hooks.provider]
    directory = run_dir.path / "hooks"
    files: list[str] = []
    for file in template.files:
        text = _render_file(file, template, argv, directory)
        if not file.worktree:
            _write_file(directory / file.name, text)
            continue
        reason = settings_section.add_section(worktree, file, text, run_dir)
        if reason is not None:
            return InstalledHooks(reason=reason)
        files.append(file.worktree)
    each = ",".join(_fill_for_event(template.each, template, argv, event) for event in template.events)
    args = [fill_form(word, dir=str(directory), each=each) for word in template.args]
    args += [_fill_for_event(word, template, argv, event) for event in template.events for word in template.each_args]
    env = {name: fill_form(value, dir=str(directory)) for name, value in template.env.items()}
    env_objects = {name: fill_form(value, dir=str(directory)) for name, value in template.env_json.items()}
    return InstalledHooks((*preset.hooks.args, *args), {**preset.hooks.env, **env}, env_objects, tuple(files))


def remove_hooks(worktree: Path, run_dir: RunDir) -> tuple[str, ...]:
    """Remove this run's sections from files of the worktree, and nothing else. Return the files' names. Idempotent.

    Raises OSError, LizaError.
    """
    file = settings_section.remove_section(worktree, run_dir)
    return () if file is None else (file,)


def list_hook_files(run_dir: RunDir) -> tuple[str, ...]:
    """Return the files of the worktree with this run's hooks. Raises LizaError."""
    note = settings_section.read_section_note(run_dir)
    return () if note is None else (note.file,)


def list_created_files(run_dir: RunDir) -> tuple[str, ...]:
    """Return those of them that this run created. Raises LizaError."""
    note = settings_section.read_section_note(run_dir)
    return (note.file,) if note is not None and note.created else ()


def _render_file(file: HookFile, template: HookTemplate, argv: list[str], directory: Path) -> str:
    if file.script:
        script = (TEMPLATES / file.script).read_text(encoding="utf-8")
        return str(fill_form(script, words=json.dumps(argv)))
    if file.each:
        return "".join(_fill_for_event(file.each, template, argv, event) for event in template.events)
    if file.whole is None:
        return file.text
    events = {
        name: _fill_for_event(file.entry if event.entry is None else event.entry, template, argv, name)
        for name, event in template.events.items()
    }
    return (
        json.dumps(
            merge_objects(_read_inherited(file), fill_form(file.whole, events=events, dir=str(directory))), indent=1
        )
        + "\n"
    )


def _fill_for_event(form: Any, template: HookTemplate, argv: list[str], event: str) -> Any:
    command = shlex.join([*argv, event])
    values: dict[str, Any] = {
        "event": event,
        "snake": re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower(),
        "command": command,
        "quoted": json.dumps(command),
        "seconds": template.events[event].seconds,
    }
    if template.digest_of is not None:
        canonical = json.dumps(
            fill_form(template.digest_of, **values), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        values["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
    return fill_form(form, **values)


def _read_inherited(file: HookFile) -> dict[str, Any]:
    for pattern in file.inherits:
        try:
            return _parse_object(Path(os.path.expandvars(pattern)).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(settings_section.blank_comments(text))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def merge_objects(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two objects: concatenate lists, merge objects; for other values, ``above`` wins."""
    return dict(_merge_items(below, above))


def _merge_items(below: dict[str, Any], above: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in dict.fromkeys([*below, *above]):
        low, high = below.get(key), above.get(key, below.get(key))
        if key in below and isinstance(low, dict) and isinstance(high, dict):
            yield key, merge_objects(low, high) if key in above else low
        elif key in below and key in above and isinstance(low, list) and isinstance(high, list):
            yield key, [*low, *high]
        else:
            yield key, high


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(path, text.encode())

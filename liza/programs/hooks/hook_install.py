"""Putting Liza's hooks into one session: words, environment and files of the run, and nothing in the person's home.

What a program can be given by a flag or a variable lies in the run's directory. Where only a file in the worktree is
read, ``joined`` lays our part into it and takes it away again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
from liza.system import atomic


@dataclass(frozen=True)
class InstalledHooks:
    """``args`` and ``env`` are for the command, and so are ``objects``, variables that others may have set besides;
    ``files`` lie in the worktree (relative) and have to be kept out of commits. ``reason`` says why a program that has
    hooks goes without."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    env_objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    reason: str | None = None

    def apply_to(self, env: Mapping[str, str]) -> dict[str, str]:
        """The session's environment with what the hooks need; what its variables say already goes on holding."""
        merged = {
            name: json.dumps(merge_objects(_parse_object(env.get(name, "")), value))
            for name, value in self.env_objects.items()
        }
        return {**env, **self.env, **merged}


def install_hooks(preset: Preset, worktree: Path, run_dir: RunDir, liza: Path) -> InstalledHooks:
    """Put the hooks of ``preset`` in for one run; ``liza`` is the absolute path of the command that they call.

    Nothing where its hooks are informational, or there is no template for them. Raises OSError, LizaError.
    """
    if preset.hooks.informational or preset.hooks.provider not in list_providers():
        return InstalledHooks()
    found = load_template(preset.hooks.provider)
    words = [str(liza), "hook", preset.hooks.provider]
    place = run_dir.path / "hooks"
    files: list[str] = []
    for file in found.files:
        text = _render_file(file, found, words, place)
        if not file.worktree:
            _write_file(place / file.name, text)
            continue
        reason = settings_section.add_section(worktree, file, text, run_dir)
        if reason is not None:
            return InstalledHooks(reason=reason)
        files.append(file.worktree)
    each = ",".join(_fill_for_event(found.each, found, words, event) for event in found.events)
    args = [fill_form(word, dir=str(place), each=each) for word in found.args]
    args += [_fill_for_event(word, found, words, event) for event in found.events for word in found.each_args]
    env = {name: fill_form(value, dir=str(place)) for name, value in found.env.items()}
    objects = {name: fill_form(value, dir=str(place)) for name, value in found.env_json.items()}
    return InstalledHooks((*preset.hooks.args, *args), {**preset.hooks.env, **env}, objects, tuple(files))


def remove_hooks(worktree: Path, run_dir: RunDir) -> tuple[str, ...]:
    """Take what this run laid into files of the worktree out again, and nothing else; their names. Repeatable.

    Raises OSError, LizaError.
    """
    taken = settings_section.remove_section(worktree, run_dir)
    return () if taken is None else (taken,)


def list_hook_files(run_dir: RunDir) -> tuple[str, ...]:
    """The files of the worktree that this run's hooks lie in. Raises LizaError."""
    noted = settings_section.read_section_note(run_dir)
    return () if noted is None else (noted.file,)


def list_created_files(run_dir: RunDir) -> tuple[str, ...]:
    """Those of them that were not there before. Raises LizaError."""
    noted = settings_section.read_section_note(run_dir)
    return (noted.file,) if noted is not None and noted.created else ()


def _render_file(file: HookFile, found: HookTemplate, words: list[str], place: Path) -> str:
    if file.script:
        script = (TEMPLATES / file.script).read_text(encoding="utf-8")
        return str(fill_form(script, words=json.dumps(words)))
    if file.each:
        return "".join(_fill_for_event(file.each, found, words, event) for event in found.events)
    if file.whole is None:
        return file.text
    events = {event: _fill_for_event(file.entry, found, words, event) for event in found.events}
    return (
        json.dumps(merge_objects(_read_inherited(file), fill_form(file.whole, events=events, dir=str(place))), indent=1)
        + "\n"
    )


def _fill_for_event(form: Any, found: HookTemplate, words: list[str], event: str) -> Any:
    command = shlex.join([*words, event])
    named: dict[str, Any] = {
        "event": event,
        "snake": re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower(),
        "command": command,
        "quoted": json.dumps(command),
        "seconds": found.events[event].seconds,
    }
    if found.digest_of is not None:
        shortest = json.dumps(
            fill_form(found.digest_of, **named), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        named["digest"] = hashlib.sha256(shortest.encode()).hexdigest()
    return fill_form(form, **named)


def _read_inherited(file: HookFile) -> dict[str, Any]:
    for name in file.inherits:
        try:
            return _parse_object(Path(os.path.expandvars(name)).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def _parse_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(settings_section.blank_comments(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def merge_objects(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both objects in one: lists behind one another, and of two other values the one above."""
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

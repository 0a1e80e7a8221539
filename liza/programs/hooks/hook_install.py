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
from liza.programs.hooks.hook_templates import TEMPLATES, HookFile, Template, filled, providers, template
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.system import atomic


@dataclass(frozen=True)
class Installed:
    """``args`` and ``env`` are for the command, and so are ``objects``, variables that others may have set besides;
    ``files`` lie in the worktree (relative) and have to be kept out of commits. ``reason`` says why a program that has
    hooks goes without."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    reason: str | None = None

    def over(self, env: Mapping[str, str]) -> dict[str, str]:
        """The session's environment with what the hooks need; what its variables say already goes on holding."""
        merged = {
            name: json.dumps(laid_over(_object(env.get(name, "")), value)) for name, value in self.objects.items()
        }
        return {**env, **self.env, **merged}


def install(preset: Preset, worktree: Path, run_dir: RunDir, liza: Path) -> Installed:
    """Put the hooks of ``preset`` in for one run; ``liza`` is the absolute path of the command that they call.

    Nothing where its hooks are informational, or there is no template for them. Raises OSError, LizaError.
    """
    if preset.hooks.informational or preset.hooks.provider not in providers():
        return Installed()
    found = template(preset.hooks.provider)
    words = [str(liza), "hook", preset.hooks.provider]
    place = run_dir.path / "hooks"
    files: list[str] = []
    for file in found.files:
        text = _text(file, found, words, place)
        if not file.worktree:
            _put(place / file.name, text)
            continue
        reason = settings_section.lay(worktree, file, text, run_dir)
        if reason is not None:
            return Installed(reason=reason)
        files.append(file.worktree)
    each = ",".join(_of_event(found.each, found, words, event) for event in found.events)
    args = [filled(word, dir=str(place), each=each) for word in found.args]
    args += [_of_event(word, found, words, event) for event in found.events for word in found.each_args]
    env = {name: filled(value, dir=str(place)) for name, value in found.env.items()}
    objects = {name: filled(value, dir=str(place)) for name, value in found.env_json.items()}
    return Installed((*preset.hooks.args, *args), {**preset.hooks.env, **env}, objects, tuple(files))


def take_away(worktree: Path, run_dir: RunDir) -> tuple[str, ...]:
    """Take what this run laid into files of the worktree out again, and nothing else; their names. Repeatable.

    Raises OSError, LizaError.
    """
    taken = settings_section.take_away(worktree, run_dir)
    return () if taken is None else (taken,)


def laid(run_dir: RunDir) -> tuple[str, ...]:
    """The files of the worktree that this run's hooks lie in. Raises LizaError."""
    noted = settings_section.noted(run_dir)
    return () if noted is None else (noted.file,)


def made(run_dir: RunDir) -> tuple[str, ...]:
    """Those of them that were not there before. Raises LizaError."""
    noted = settings_section.noted(run_dir)
    return (noted.file,) if noted is not None and noted.created else ()


def _text(file: HookFile, found: Template, words: list[str], place: Path) -> str:
    if file.script:
        script = (TEMPLATES / file.script).read_text(encoding="utf-8")
        return str(filled(script, words=json.dumps(words)))
    if file.each:
        return "".join(_of_event(file.each, found, words, event) for event in found.events)
    if file.whole is None:
        return file.text
    events = {event: _of_event(file.entry, found, words, event) for event in found.events}
    return json.dumps(laid_over(_inherited(file), filled(file.whole, events=events, dir=str(place))), indent=1) + "\n"


def _of_event(form: Any, found: Template, words: list[str], event: str) -> Any:
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
            filled(found.digest_of, **named), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        named["digest"] = hashlib.sha256(shortest.encode()).hexdigest()
    return filled(form, **named)


def _inherited(file: HookFile) -> dict[str, Any]:
    for name in file.inherits:
        try:
            return _object(Path(os.path.expandvars(name)).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(settings_section.without_comments(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both objects in one: lists behind one another, and of two other values the one above."""
    return dict(_joined_items(below, above))


def _joined_items(below: dict[str, Any], above: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in dict.fromkeys([*below, *above]):
        low, high = below.get(key), above.get(key, below.get(key))
        if key in below and isinstance(low, dict) and isinstance(high, dict):
            yield key, laid_over(low, high) if key in above else low
        elif key in below and key in above and isinstance(low, list) and isinstance(high, list):
            yield key, [*low, *high]
        else:
            yield key, high


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(path, text.encode())

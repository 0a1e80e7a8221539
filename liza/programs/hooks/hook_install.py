"""Install Liza's hooks for one session: arguments, environment and files of the run; nothing in the person's home.

Files that a program accepts by a flag or a variable are in the run's directory. If the program reads only a file in the
worktree, Liza's part is added to it and removed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liza.model.value_classes import FrozenStruct, Value, field
from liza.programs.hooks.hook_events import (
    REFUSED_CODE,
    TEMPLATES,
    HookEvent,
    HookFile,
    HookMeaning,
    HookTemplate,
    fill_form,
    list_providers,
    list_worktree_files,
    load_template,
)
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir, read_struct
from liza.system import atomic, crash_points
from liza.text.brief_marks import begin_mark, end_mark, strip_blocks

JUDGE_LIMIT = 15
"""Seconds for the judgment of a tool. Programs wait 20 seconds for a hook, and let the tool run afterwards."""
UNJUDGED = (
    "[liza] not run: Liza cannot judge this tool, because its command is missing, failed or did not answer. "
    "Try once more. If it is refused again, stop here: a person has to run liza doctor"
)
"""What the model reads if ``liza hook`` gives no verdict."""
NO_VERDICT = "[liza] not run: no verdict"
"""The same for programs that are told by an exit status. Some show the model the whole command with each refusal, so
it is short."""
# A program runs a command in a shell of its choice, so all of this is one word for /bin/sh. Outside of a session it
# does nothing: a person may use a worktree with hooks that a killed supervisor left.
_IN_SESSION = '[ -n "$LIZA_RUN" ] || exit 0; '
_LIMITED = f'command -v timeout >/dev/null && set -- timeout -k 2 {JUDGE_LIMIT} "$@"; '
_INFORM = f'{_IN_SESSION}"$@" || exit 0'
_REFUSE = f'[ $? -eq {REFUSED_CODE} ] || echo "{NO_VERDICT}" >&2; exit {REFUSED_CODE}'
_JUDGE_BY_CODE = f'{_IN_SESSION}{_LIMITED}"$@" || {{ {_REFUSE}; }}'
_PRINT = '[ -z "$reply" ] || printf "%s\\n" "$reply"'
_JUDGE_BY_REPLY = f'{_IN_SESSION}refusal=$1; shift; {_LIMITED}reply=$("$@") || reply=$refusal; {_PRINT}'


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
        reason = add_section(worktree, file, text, run_dir)
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
    file = remove_section(worktree, run_dir)
    return () if file is None else (file,)


def list_hook_files(run_dir: RunDir) -> tuple[str, ...]:
    """Return the files of the worktree with this run's hooks. Raises LizaError."""
    note = read_section_note(run_dir)
    return () if note is None else (note.file,)


def list_created_files(run_dir: RunDir) -> tuple[str, ...]:
    """Return those of them that this run created. Raises LizaError."""
    note = read_section_note(run_dir)
    return (note.file,) if note is not None and note.created else ()


def _render_file(file: HookFile, template: HookTemplate, argv: list[str], directory: Path) -> str:
    if file.script:
        script = (TEMPLATES / file.script).read_text(encoding="utf-8")
        return str(fill_form(script, words=json.dumps(argv), unjudged=json.dumps(UNJUDGED)))
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
    command = _compose_command(template.events[event], [*argv, event])
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


def _compose_command(event: HookEvent, argv: list[str]) -> str:
    """Return the shell command of an event.

    A tool runs only if ``argv`` allows it: a missing, failed or late command refuses it in the program's own way. Other
    events never stop the program.
    """
    if event.means is not HookMeaning.TOOL:
        return shlex.join(["/bin/sh", "-c", _INFORM, "liza", *argv])
    if event.refuse is None:
        return shlex.join(["/bin/sh", "-c", _JUDGE_BY_CODE, "liza", *argv])
    refusal = json.dumps(fill_form(event.refuse, text=UNJUDGED))
    return shlex.join(["/bin/sh", "-c", _JUDGE_BY_REPLY, "liza", refusal, *argv])


def _read_inherited(file: HookFile) -> dict[str, Any]:
    for pattern in file.inherits:
        try:
            return _parse_object(Path(os.path.expandvars(pattern)).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(blank_comments(text))
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


MAX_FILE_SIZE = 1 << 20  # bytes
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class SectionNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``hooks.json``: the file in the worktree that the section is about to be added to.

    ``created``: the file did not exist before; ``parent``: its directory did not, either.
    """

    file: str
    created: bool = False
    parent: bool = False


class _UnsuitableSettings(Exception):
    """The section cannot be added to the file."""


def add_section(worktree: Path, file: HookFile, text: str, run_dir: RunDir) -> str | None:
    """Make ``text``, a JSON object, effective in the file together with its contents; older sections are removed.

    Return None, or why it is impossible. Raises OSError, LizaError.
    """
    try:
        target = _resolve_target(worktree, file.worktree)
        old = target.read_bytes() if target.exists() else None
        remaining = strip_blocks(old or b"", run_dir.find_block_keys(old or b""))
        created = old is None or (not remaining and old != remaining)
        if not created and not file.comment:
            raise _UnsuitableSettings(f"{file.worktree} belongs to the project, and is not changed")
        new = _render_whole(file, text, run_dir) if created else _insert_section(file, remaining, text, run_dir)
    except _UnsuitableSettings as error:
        return str(error)
    note = SectionNote(file=file.worktree, created=created, parent=not target.parent.is_dir())
    if not file.comment:
        _hooks_directory(run_dir).mkdir(mode=0o700, exist_ok=True)
        atomic.write(_hooks_directory(run_dir) / "whole", new)
    atomic.write(run_dir.path / "hooks.json", msgspec.json.encode(note) + b"\n")
    crash_points.point("hooks", "noted")
    target.parent.mkdir(exist_ok=True)
    _replace_file(target, new, run_dir)
    return None


def read_section_note(run_dir: RunDir) -> SectionNote | None:
    """Return the file that this run's section was, or was about to be, added to. Raises LizaError."""
    note = read_struct(run_dir.path / "hooks.json", SectionNote)
    # An agent can write this file; the file that it names is changed or deleted, so only known names are accepted.
    return note if note is not None and note.file in list_worktree_files() else None


def remove_section(worktree: Path, run_dir: RunDir) -> str | None:
    """Remove this run's section from the file; also the file, if this run created it and it has no other content.

    Return the name of a changed file. Idempotent. Raises OSError, LizaError.
    """
    note = read_section_note(run_dir)
    if note is None:
        return None
    try:
        target = _resolve_target(worktree, note.file)
        old = target.read_bytes()
    except FileNotFoundError:
        _remove_directory(worktree, note)
        return None
    except (_UnsuitableSettings, NotADirectoryError):
        return None
    remaining = strip_blocks(old, (run_dir.block_key(),)) if _is_marked(old) else _remove_whole(old, run_dir)
    if remaining == old:
        return None
    if remaining or not note.created:
        _replace_file(target, remaining, run_dir)
        return note.file
    target.unlink()
    _remove_directory(worktree, note)
    return note.file


def _remove_directory(worktree: Path, note: SectionNote) -> None:
    """Remove the directory that was created for the file, if it is empty."""
    directory = (worktree / note.file).parent
    if note.parent and directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def blank_comments(text: str) -> str:
    """Return ``text`` with blanks in place of its comments, so that all positions stay the same."""
    return _COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]), text)


def _is_marked(data: bytes) -> bool:
    return b"<!-- liza:begin run=" in data


def _remove_whole(old: bytes, run_dir: RunDir) -> bytes:
    """Return nothing for a file without comments that is still as this run wrote it; otherwise its contents."""
    written = _hooks_directory(run_dir) / "whole"
    return b"" if written.is_file() and written.read_bytes() == old else old


def _render_whole(file: HookFile, text: str, run_dir: RunDir) -> bytes:
    if not file.comment:
        return text.encode()
    begin, end = (file.comment + mark(run_dir.run, run_dir.block_key()) for mark in (begin_mark, end_mark))
    return f"{begin}\n{text.rstrip()}\n{end}\n".encode()


def _insert_section(file: HookFile, old: bytes, text: str, run_dir: RunDir) -> bytes:
    """Insert the section before the end of the file.

    Of two equal keys the last is effective, so a key of the section contains also the values under the file's first
    one.
    """
    try:
        file_text = old.decode()
        bare = blank_comments(file_text)
        theirs: Any = json.loads(bare)
    except (ValueError, RecursionError) as error:
        raise _UnsuitableSettings(f"{file.worktree} is not valid JSON ({error})") from error
    at = bare.rstrip().rfind("}")
    line = bare.rfind("\n", 0, at) + 1
    if not isinstance(theirs, dict) or bare[line:at].strip() or file_text[line:at].strip():
        raise _UnsuitableSettings(f"{file.worktree} does not end with a closing brace on a line of its own")
    ours = {key: _merge_values(theirs.get(key), value, file) for key, value in json.loads(text).items()}
    comma = ", " if theirs else ""
    try:
        keys = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in ours.items())
    except RecursionError as error:
        raise _UnsuitableSettings(f"{file.worktree} is nested too deeply") from error
    begin, end = (file.comment + mark(run_dir.run, run_dir.block_key()) for mark in (begin_mark, end_mark))
    return f"{file_text[:line]}{begin}\n{comma}{keys}\n{end}\n{file_text[line:]}".encode()


def _merge_values(theirs: Any, ours: Any, file: HookFile) -> Any:
    if theirs is None:
        return ours
    if isinstance(theirs, list) and isinstance(ours, list):
        return [*theirs, *ours]
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {**theirs, **{key: _merge_values(theirs.get(key), value, file) for key, value in ours.items()}}
    raise _UnsuitableSettings(f"{file.worktree} has hooks in an unknown format")


def _resolve_target(worktree: Path, name: str) -> Path:
    """Return the path. Raises _UnsuitableSettings unless it is, or can be, a regular file of the worktree without
    links."""
    target = worktree / name
    for path in (target.parent, target):
        if path.is_symlink():
            raise _UnsuitableSettings(f"{path.relative_to(worktree)} is a link")
    if os.path.lexists(target.parent) and not target.parent.is_dir():
        raise _UnsuitableSettings(f"{target.parent.relative_to(worktree)} is not a directory")
    if os.path.lexists(target):
        status = target.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_SIZE:
            raise _UnsuitableSettings(f"{name} is not a regular file of at most {MAX_FILE_SIZE >> 20} MiB")
    return target


def _replace_file(target: Path, data: bytes, run_dir: RunDir) -> None:
    """Replace the file by a rename; keep its mode. The temporary file is in the run's directory, where git does not
    look."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
    _hooks_directory(run_dir).mkdir(mode=0o700, exist_ok=True)
    atomic.write_from(_hooks_directory(run_dir), target, data, mode, label="hooks")
    crash_points.point("hooks", "laid")


def _hooks_directory(run_dir: RunDir) -> Path:
    return run_dir.path / "hooks"

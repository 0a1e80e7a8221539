"""What a template says about one program's hooks: how ours are put in, what its events mean, how it wants an answer.

Everything a vendor names stands in ``templates/NAME.toml``, and beside it the scripts of programs that want one.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from liza.rules.errors import LizaError, UsageError
from liza.rules.model import FrozenStruct

TEMPLATES = Path(__file__).with_name("templates")
EventMeaning = Literal["started", "busy", "idle", "tool", "compaction", "stopped"]


class HookEvent(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the program's events, and what it means to Liza. ``instead``: a field of what the program says, and for
    each of its values that means something else, what.

    ``context`` is the answer that lays a text before the model, ``push`` the one that makes the program go on with a
    text instead of ending its turn, ``refuse`` the one that keeps a tool from running; ``{text}`` stands for the text.
    One that is not there cannot be answered so. A refusal without a form is exit code 2, with the text on stderr.
    ``seconds``: how long the program waits for the answer.
    """

    means: EventMeaning
    seconds: int = 20
    instead: dict[str, dict[str, EventMeaning]] = msgspec.field(default_factory=dict)
    context: Any = None
    push: Any = None
    refuse: Any = None


class HookFields(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where in what the program says: its id of the conversation, the tool's name and what it is called with, what a
    turn begins with, and what is there only where a helper of the program's own speaks."""

    session: str = "session_id"
    tool: str = "tool_name"
    input: str = "tool_input"
    prompt: str = "prompt"
    nested: str = ""


class HookFile(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A file to write: ``name`` below the run's own directory of hooks, or ``worktree`` relative to the worktree.

    Its text is ``text``, or ``script`` (a file beside the template), or ``each`` once for every event, or the object
    ``whole``, in which ``{events}`` becomes all events with their ``entry``. ``inherits``: the files, or ``$NAME`` of a
    variable that names one, of which the program reads the first; given this one it reads none, so that what they say
    is taken into it. ``comment`` begins a line that the program overlooks: where the project has the file already, our
    part is laid into it between two of them; without it a file of the project's own is left alone.
    """

    name: str = ""
    worktree: str = ""
    text: str = ""
    script: str = ""
    each: str = ""
    whole: Any = None
    entry: Any = None
    inherits: tuple[str, ...] = ()
    comment: str = ""


class HookTemplate(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One program's hooks. In words and texts ``{dir}`` is the run's directory of hooks, ``{event}`` and ``{command}``
    an event and the command for it, ``{quoted}`` that command between double quotes, ``{words}`` a list of the words
    that an event is put behind.

    ``{seconds}`` is how long an event is waited for, ``{snake}`` the event in lower case with underscores, ``{digest}``
    the sha256 of ``digest_of``, an object, in its shortest form with sorted keys: a program may ask for it to know what
    a person has trusted.

    ``args`` follow the program's own, ``{each}`` in one of them is ``each`` for all events with commas between them;
    ``each_args`` follow once for every event; ``env`` is text, ``env_json`` objects that are laid over what the
    variables hold already. ``limit``: the longest text, in characters, that the program takes as context. ``pushes``:
    how often in one turn it lets itself be pushed on.
    """

    verified: str
    args: tuple[str, ...] = ()
    each: str = ""
    each_args: tuple[str, ...] = ()
    digest_of: Any = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_json: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    files: tuple[HookFile, ...] = ()
    reads: HookFields = HookFields()
    events: dict[str, HookEvent] = msgspec.field(default_factory=dict)
    limit: int = 100_000
    pushes: int = 50


def list_providers() -> frozenset[str]:
    """The hook providers that there is a template for."""
    return frozenset(file.stem for file in TEMPLATES.glob("*.toml"))


@functools.cache
def list_worktree_files() -> frozenset[str]:
    """The files of a worktree that some template's hooks are laid into."""
    return frozenset(file.worktree for name in list_providers() for file in load_template(name).files if file.worktree)


def load_template(provider: str) -> HookTemplate:
    """The template of a provider. Raises Usage where there is none, LizaError where it does not hold together."""
    place = TEMPLATES / f"{provider}.toml"
    if not provider.replace("-", "").isalnum() or not place.is_file():
        raise UsageError(f"there are no hooks for {provider!r}", "liza programs list")
    try:
        return msgspec.convert(tomllib.loads(place.read_text(encoding="utf-8")), HookTemplate)
    except (ValueError, msgspec.ValidationError) as error:
        raise LizaError(f"{place} cannot be read: {error}") from error


def fill_form(form: Any, **words: Any) -> Any:
    """A form with its ``{word}`` filled in. A text that is nothing but one word becomes that word's value, of any kind;
    words that are not named stay as they are."""
    if isinstance(form, str):
        for name, value in words.items():
            if form == f"{{{name}}}":
                return value
            if isinstance(value, str | int):
                form = form.replace(f"{{{name}}}", str(value))
        return form
    if isinstance(form, dict):
        return {fill_form(key, **words): fill_form(value, **words) for key, value in form.items()}
    if isinstance(form, list):
        return [fill_form(one, **words) for one in form]
    return form

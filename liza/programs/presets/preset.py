"""What a row of ``presets.toml`` says: how to start, brief, watch and understand one agent program."""

from __future__ import annotations

from typing import Literal

import msgspec

from liza.rules.model import FrozenStruct

PromptStyle = Literal["arg", "stdin", "none"]
UNCONFINED_WARNING = "nothing confines it: it can do what you can"


class LaunchMode(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to start it. ``args`` follow the command, ``before_prompt`` stands between all options and the prompt.

    ``prompt``: the prompt is the last argument, the whole stdin, or not given at all. ``output`` names the form of what
    it prints, for reading usage out of it. ``dirs``: whether it is given the words of ``add_dirs``.
    """

    args: tuple[str, ...] = ()
    prompt: PromptStyle = "arg"
    before_prompt: tuple[str, ...] = ()
    output: str = "text"
    dirs: bool = True


class Permissions(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments for the two answers to "may it do whatever you can?": ``confined`` is no, ``bypass`` is yes.

    ``confined_env`` and ``bypass_env`` are for what a program takes from its environment alone. ``none``: it has no
    permissions to give or to keep, so that a confined one can do what an unconfined one can.
    """

    confined: tuple[str, ...] = ()
    bypass: tuple[str, ...] = ()
    confined_env: dict[str, str] = msgspec.field(default_factory=dict)
    bypass_env: dict[str, str] = msgspec.field(default_factory=dict)
    none: bool = False


class ResumeStyle(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How an earlier conversation is gone on with: by a ``flag``, by a ``subcommand``, or not.

    The words of both stand behind all options and in front of what leads the prompt. ``id`` goes on with one that is
    named, ``latest`` with the last one of this directory; ``fork`` begins a new one with the named one's memory.
    """

    style: Literal["flag", "subcommand", "none"] = "none"
    id: tuple[str, ...] = ()
    latest: tuple[str, ...] = ()
    fork: tuple[str, ...] = ()


class HookSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The hooks that Liza can put into the program: ``provider`` names their template, which says how.
    ``informational`` ones are texts that it may read, and run nothing.

    ``args`` and ``env`` are words and variables that it needs with them besides those of the template.
    """

    provider: str = ""
    informational: bool = False
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)


class Dialog(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A text on the screen that means: a person has to answer. ``kind``: trust, login, permissions."""

    kind: str
    match: str


class UsageFormat(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a program's own output says what a session used. A path names keys from the outside in, with dots.

    ``form``: an object a line, one document, or plain text, whose ``pattern`` has groups named ``input``, ``output``
    and ``cost``. ``when`` names what an object must hold at a path to count; the figures of all that do are added up
    (``combine`` sum), or the last one's taken, or the largest. ``cached`` is part of ``input``. ``cost`` is in US
    dollars. ``session`` is where the id of the conversation stands, in any object. ``file`` is a file in the run's
    directory that says it in place of the output. ``free`` false: a price of 0 means that the program does not know the
    price of its model.
    """

    file: str = ""
    free: bool = True
    form: Literal["json-lines", "json", "text"] = "json-lines"
    when: dict[str, str] = msgspec.field(default_factory=dict)
    combine: Literal["sum", "last", "most"] = "sum"
    input: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    cost: str = ""
    session: tuple[str, ...] = ()
    pattern: str = ""


class ConversationLogFormat(UsageFormat, frozen=True, kw_only=True, omit_defaults=True):
    """The file in which the program itself keeps a conversation, with what each request used, while it works.

    ``file`` is a pattern with ``{config}``, the program's configuration directory (``config`` below HOME, or what its
    variable of ``config_dir_env`` says), ``{id}``, the id of the conversation, and ``{short}``, the id's first 8
    characters. ``time`` is where a line says when it was written, as ISO 8601 or in milliseconds: lines older than the
    session belong to an earlier one. ``key`` names the request: of several lines with one key the last counts.
    """

    config: str = ""
    time: str = ""
    key: str = ""


class ToolCallFormat(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Lines of the output that tell of a tool call: that it begins, that it is over, or both in one.

    ``when``: regular expressions, by path, that an object must match in full to count; ``each``: a list in it whose
    entries are looked at instead. ``id`` names the call, ``call`` is what was called, ``result`` what came of it.
    ``noise``: a regular expression for what differs in each result, such as a number of the call.
    """

    when: dict[str, str] = msgspec.field(default_factory=dict)
    each: str = ""
    id: str = ""
    call: tuple[str, ...] = ()
    result: tuple[str, ...] = ()
    noise: str = ""


class FailurePattern(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A regular expression over a line of the output that tells what kept the model from answering.

    ``kind``: login (only a person can mend it), quota (it goes by by itself), server (the model answers errors), broken
    (its answers end early or cannot be read). The groups ``days``, ``hours``, ``minutes``, ``seconds``,
    ``milliseconds``, ``epoch`` or ``time`` of a quota's say when it is over. ``retried``: the program tries again by
    itself. What an agent's tools print stands in the same output, so a pattern is tied to the beginning of a line that
    only the program itself writes. The group ``words`` is what a person reads, or ``says`` with groups in braces. A
    line of a log that several sessions share counts only where its group ``pid`` is a process of this session.
    """

    kind: Literal["login", "quota", "server", "broken"]
    match: str
    says: str = ""
    retried: bool = False


class Preset(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent program. Times are seconds. ``exit_codes``: what a code of its own means as one of Liza's words.

    ``verified`` says with which version what was seen. ``first_run`` are words that keep away the questions of a first
    start, such as whether to trust a directory ({cwd}), without a change to the person's own settings. ``lacks`` says
    to a person what it cannot do in a crew, whatever its arguments.

    ``answers`` is a regular expression over a line that shows that the model has answered again; where it is empty,
    any event that is no failure shows that. ``log`` is a file of the program's own that is read for ``failures``
    besides its output: ``${NAME:-default}`` stands for a variable, ``~`` for the home, ``{session}`` for the id of the
    conversation.

    ``input_line`` is an expression for the lines of a screen where one types; its group ``typed`` is what stands
    there. ``input_empty`` fits the whole of that while nobody has typed anything: a hint that the program shows. A line
    that is not known to be empty is not typed into once a person was at the terminal.

    ``command`` and ``args`` may be empty only for a program whose command a person gives.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    verified: str = ""
    lacks: str = ""
    install: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_allow: tuple[str, ...] = ()
    process_names: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ("AGENTS.md",)
    creates: str = ""
    config_dir_env: str = ""
    session_id_env: str = ""
    add_dirs: tuple[str, ...] = ()
    first_run: tuple[str, ...] = ()
    ready_prompt: str = ""
    input_line: str = ""
    input_empty: str = ""
    ready_timeout: int = 60
    login_signs: tuple[str, ...] = ()
    interactive: LaunchMode = LaunchMode()
    headless: LaunchMode = LaunchMode()
    permissions: Permissions = Permissions()
    resume: ResumeStyle = ResumeStyle()
    hooks: HookSettings = HookSettings()
    dialogs: tuple[Dialog, ...] = ()
    usage: UsageFormat = UsageFormat()
    journal: ConversationLogFormat = ConversationLogFormat()
    calls: tuple[ToolCallFormat, ...] = ()
    failures: tuple[FailurePattern, ...] = ()
    answers: str = ""
    log: str = ""
    exit_codes: dict[str, Literal["0", "1", "42"]] = msgspec.field(default_factory=dict)

    @property
    def has_confinement(self) -> bool:
        """Whether it keeps an agent from anything: by words that confine it, or by itself where words lift that."""
        may = self.permissions
        return not may.none and any((may.confined, may.confined_env, may.bypass, may.bypass_env))

    @property
    def new_instructions_file(self) -> str:
        """The instructions file to make where the project has none."""
        return self.creates or next(iter(self.instructions), "")

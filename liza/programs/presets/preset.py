"""The fields of a row of ``presets.toml``: how to start, brief, watch and understand one agent program."""

from __future__ import annotations

from typing import Literal

import msgspec

from liza.model.value_classes import FrozenStruct
from liza.programs.rules.program_spec import Transport

EventFormat = Literal[
    "", "acp", "blocks", "chats", "contents", "effects", "executions", "items", "messages", "parts", "rollout",
    "tool-events",
]  # fmt: skip
"""Forms of lines that `programs/event_readers` reads; empty: none."""
PromptStyle = Literal["arg", "stdin", "none"]
UNCONFINED_WARNING = "nothing confines it: it can do what you can"


class AcpUsage(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the program reports its usage. A path names keys from the outermost, with dots.

    ``source``: in the answer to a prompt, or in the updates of the turn. ``counts``: one turn, the whole session, the
    conversation with its earlier sessions, or one request. ``cached`` is part of ``input``; ``cost`` is a path in the
    update ``usage_update``, summed over the session.
    """

    source: Literal["answer", "updates"] = "answer"
    counts: Literal["turn", "session", "conversation", "request"] = "turn"
    input: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    cost: str = ""


class AcpFailurePattern(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """An expression for the last text of a turn, or for the text of its error: the model did not answer, because of
    ``kind``. The message for a person is the group ``words``, or the rest of the text."""

    kind: Literal["login", "model", "quota", "server", "broken"]
    match: str


class AcpSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The table ``acp`` of a row. Times are seconds.

    ``command``: empty if the program itself speaks ACP; else its adapter, which ``install`` installs. ``mode`` is set
    with session/set_mode, ``options`` with session/set_config_option, ``model`` with session/set_model: before the
    first prompt. ``model_args`` and ``model_env`` pass the model of ``NAME@MODEL``, as ``{model}``, at the start; an
    entry of ``options`` or a ``model`` with ``{model}`` passes it in the session. Without ``@`` none of these is used.
    ``drain``: how long the program may take to exit after its stdin was closed. ``load_min_age``: the age of a session
    from which on its conversation is loaded: one program overwrites a younger one when it is told to load it.
    ``orphans_tools``: a cancelled turn leaves its tool running. ``command_paths`` and ``file_paths``: where a tool call
    holds the command, and the file. ``lacks`` tells a person what is missing over ACP.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    install: str = ""
    verified: str = ""
    lacks: str = ""
    mode: str = ""
    model: str = ""
    model_args: tuple[str, ...] = ()
    model_env: dict[str, str] = msgspec.field(default_factory=dict)
    options: dict[str, str] = msgspec.field(default_factory=dict)
    drain: float = 3.0
    load_min_age: float = 0.0
    orphans_tools: bool = False
    command_paths: tuple[str, ...] = ("rawInput.command",)
    file_paths: tuple[str, ...] = ("rawInput.file_path", "rawInput.path", "locations.*.path", "content.*.path")
    usage: AcpUsage = AcpUsage()
    failures: tuple[AcpFailurePattern, ...] = ()


class LaunchMode(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to start the program. ``args`` follow the command, ``before_prompt`` is between all options and the
    prompt.

    ``prompt``: the prompt is the last argument, the whole stdin, or not passed. ``output`` names the output format, for
    reading usage from it. ``dirs``: whether the arguments of ``add_dirs`` are passed.
    """

    args: tuple[str, ...] = ()
    prompt: PromptStyle = "arg"
    before_prompt: tuple[str, ...] = ()
    output: str = "text"
    dirs: bool = True


class Permissions(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments for the two permission modes: ``prompts`` (it does only what needs no prompt), and ``bypass`` (it skips
    them).

    ``prompts_env`` and ``bypass_env`` are for settings that a program takes only from its environment. ``none``: the
    program has no permission modes: its sessions are as with ``bypass``.
    """

    prompts: tuple[str, ...] = ()
    bypass: tuple[str, ...] = ()
    prompts_env: dict[str, str] = msgspec.field(default_factory=dict)
    bypass_env: dict[str, str] = msgspec.field(default_factory=dict)
    none: bool = False


class ResumeStyle(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How the program resumes an earlier conversation: by a ``flag``, by a ``subcommand``, or not at all.

    The arguments follow all options and precede ``before_prompt``. ``id`` resumes the conversation ``{id}``.
    """

    style: Literal["flag", "subcommand", "none"] = "none"
    id: tuple[str, ...] = ()


class HookSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The hooks that Liza can install for the program: ``provider`` names their template. ``informational`` hooks are
    texts that the program may read; they run nothing.

    ``args`` and ``env`` are arguments and variables that the program needs in addition to those of the template.
    """

    provider: str = ""
    informational: bool = False
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)


class Dialog(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A text on the screen that means that a person has to answer. ``kind``: trust, login, permissions."""

    kind: str
    match: str


class TokenPaths(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Paths of numbers of tokens, which are added. ``cached`` is part of ``input``."""

    input: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


class ModelUsageFormat(TokenPaths, frozen=True, kw_only=True, omit_defaults=True):
    """A table in a report of usage with one entry for each model that the session used, those of sub-agents included.

    ``table`` is its path; the others are paths in an entry. The key of an entry is the model. ``window`` is the path of
    its context window in tokens.
    """

    table: str = ""
    cost: str = ""
    window: str = ""


class UsageFormat(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a program's output reports the usage of a session. A path names keys from the outermost, with dots.

    ``form``: one object per line, one document, or plain text whose ``pattern`` has groups named ``input``, ``output``
    and ``cost``. ``when``: the values that an object must have at given paths to count. ``combine``: add up the figures
    of all such objects (sum), or take the last, or the largest (most). ``cached`` is part of ``input``. ``cost`` is in
    US dollars. ``session`` is the path of the conversation's id, in any object. ``file`` is a file in the run's
    directory that is read instead of the output. ``free`` false: a price of 0 means that the program does not know the
    price of its model.

    ``counts``: the figures are those of the session, or running totals of the conversation, which continue when it is
    resumed. ``models``: where the same object tells the usage by model; tokens are then the sum over its models.

    ``model`` is the path, in any object, of the session's model. ``windows`` gives context windows in tokens by the
    model, whose name may end with ``*``.
    """

    file: str = ""
    counts: Literal["session", "conversation"] = "session"
    models: ModelUsageFormat = ModelUsageFormat()
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
    model: str = ""
    windows: dict[str, int] = msgspec.field(default_factory=dict)


class ConversationLogFormat(UsageFormat, frozen=True, kw_only=True, omit_defaults=True):
    """The file in which the program logs a conversation, with the usage of each request, while it works.

    ``file`` is a glob pattern with ``{config}``, the program's configuration directory (``config`` below HOME, or the
    value of its variable ``config_dir_env``), ``{id}``, the id of the conversation, and ``{short}``, the id's first 8
    characters. ``time`` is the path of a line's time, in ISO 8601 or in milliseconds: lines older than the session
    belong to an earlier one. ``key`` is the path of the request's name: of several lines with one key the last counts.

    Sub-agents may have files of their own. ``subagents`` is a glob pattern for them with ``{dir}``, the directory of
    the conversation's file, and ``{id}``. ``subagent_ids`` are paths, in any line, of the ids of their conversations,
    whose file is ``file``.

    ``model`` is the path of the model, in the line of a request or in an earlier line of the file. ``window`` is the
    path of the model's context window in tokens, if the program logs it. ``nested`` is the path of what is true in a
    request of a sub-agent, which has a context of its own. ``request`` are the figures of one request, if the usage is
    a running total or in other lines: they fill the window, and `liza logs` shows them.

    ``events`` names the format of the lines, ``subagent`` the path of a sub-agent's id.
    """

    config: str = ""
    subagents: str = ""
    subagent_ids: tuple[str, ...] = ()
    request: TokenPaths = TokenPaths()
    time: str = ""
    key: str = ""
    window: str = ""
    nested: str = ""
    events: EventFormat = ""
    subagent: str = ""


class FailurePattern(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A regular expression for an output line that reports why the model does not answer.

    ``kind``: login and model (the program has no such model; only a person can fix either), quota (it ends by itself),
    server (the model returns errors), broken (answers are incomplete or unreadable).
    For quota, the groups ``days``, ``hours``, ``minutes``, ``seconds``,
    ``milliseconds``, ``epoch`` or ``time`` give its end. ``retried``: the program retries by itself. The message for a
    person is the group ``words``, or ``says`` with groups in braces.

    The output also contains what an agent's tools print, so a pattern must be anchored to a line start that only the
    program itself writes. A line of a log that several sessions share counts only if its group ``pid`` is a process of
    this session.
    """

    kind: Literal["login", "model", "quota", "server", "broken"]
    match: str
    says: str = ""
    retried: bool = False


class LoginSigns(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How to find out before a session whether the program has a login. ``next`` is what a person does to log in.

    One set variable of ``env`` is a login. ``status`` are arguments with which the program prints whether it has one;
    ``missing`` is a regular expression for an output that says no. Without ``status``, one of ``files`` is a sign of a
    login: a regular expression for the contents, by path (as ``log`` of the row).
    """

    env: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    missing: str = ""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    next: str = ""


class StateDirectory(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A directory in which the program has settings, logins or conversations. In a box it has one of its own instead.

    ``variable`` names the directory to the program; ``path`` is where it is without the variable, with ``~`` for the
    home directory. Without ``variable`` the box shows its own directory at ``path``, if that exists.
    ``copies`` are the files and directories below it that a box gets, as the person has them at the session's start.
    ``elsewhere`` are such files that have another path while the variable is not set. ``renewed`` names the values that
    a session may renew, by file: paths with dots, and ``*`` for any name. They are written back to the person's file.
    """

    path: str
    variable: str = ""
    copies: tuple[str, ...] = ()
    elsewhere: dict[str, str] = msgspec.field(default_factory=dict)
    renewed: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Preset(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent program. Times are seconds. ``exit_codes`` maps an own exit code to a closing code.

    ``verified`` names the version with which the row was checked. ``first_run`` are arguments that prevent the
    questions of a first start, such as whether to trust a directory ({cwd}), without changing the person's settings.
    ``lacks`` tells a person what the program cannot do in a crew, with any arguments.

    ``model`` are the arguments, and ``model_env`` the variables, with which it takes the model of ``NAME@MODEL``, as
    ``{model}``; a program with neither takes none. ``chosen_model`` is that model: no key of a row.

    ``answers`` is a regular expression for a line that shows that the model has answered again; if it is empty, any
    event that is no failure shows that. ``log`` is the program's own log, which is also read for ``failures``:
    ``${NAME:-default}`` is a variable, ``~`` the home directory, ``{session}`` the id of the conversation.

    ``input_line`` is an expression for the lines of the screen's input area; its group ``typed`` is the contents.
    ``input_empty`` matches the whole of these contents while nothing is typed: a hint of the program. After a person
    was at the terminal, Liza types only into a line that is known to be empty.

    ``events`` names the format of the output; if it is empty, `liza logs` shows the output as it is, and its tool calls
    are not counted. ``noise`` is a regular expression for parts of a call's result that differ every time. ``refusal``
    is one for a line of text beside the events that reports a refused command, with the groups ``command`` and
    ``reason``. ``exit_line`` is one for the part of a command's output in which the program reports the
    exit code, as the group ``code``. ``reports_failure`` is false if a failed command has the same result as another.

    ``sandbox`` are arguments with which it runs a command that does nothing in the sandbox of its confined sessions.

    ``credential_env`` is the variable from which it reads the secret of an account, unless the account names another
    one. ``config_dir_env`` is the variable that names its configuration directory.

    ``state`` are its directories in the person's home, of which a box has its own. ``box_args``, ``box_env`` and
    ``box_settings`` (JSON objects that are merged into files of its hooks, by name) are for sessions in a box only:
    they switch off what does not work there, such as a sandbox of its own, and questions that a box answers.

    ``reads_ci``: the program itself asks nothing and shows no prompt where CI is set, so its sessions do not get the
    variables of ``config.gate_environment``.

    ``via`` is how a session without a terminal is driven, ``acp`` the settings for a program that speaks this protocol.

    ``without_tools`` is how it is started so that it can run, read and fetch nothing: it answers its prompt, and ends.
    Without it, the program does not review what a stranger wrote.

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
    reads_ci: bool = False
    process_names: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ("AGENTS.md",)
    creates: str = ""
    config_dir_env: str = ""
    credential_env: str = ""
    session_id_env: str = ""
    state: tuple[StateDirectory, ...] = ()
    box_args: tuple[str, ...] = ()
    box_env: dict[str, str] = msgspec.field(default_factory=dict)
    box_settings: dict[str, str] = msgspec.field(default_factory=dict)
    add_dirs: tuple[str, ...] = ()
    first_run: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    model_env: dict[str, str] = msgspec.field(default_factory=dict)
    chosen_model: str = ""
    ready_prompt: str = ""
    input_line: str = ""
    input_empty: str = ""
    ready_timeout: int = 60
    login_signs: tuple[str, ...] = ()
    login: LoginSigns = LoginSigns()
    sandbox: tuple[str, ...] = ()
    interactive: LaunchMode = LaunchMode()
    headless: LaunchMode = LaunchMode()
    without_tools: LaunchMode | None = None
    permissions: Permissions = Permissions()
    resume: ResumeStyle = ResumeStyle()
    hooks: HookSettings = HookSettings()
    dialogs: tuple[Dialog, ...] = ()
    usage: UsageFormat = UsageFormat()
    journal: ConversationLogFormat = ConversationLogFormat()
    events: EventFormat = ""
    noise: str = ""
    refusal: str = ""
    exit_line: str = ""
    reports_failure: bool = True
    failures: tuple[FailurePattern, ...] = ()
    answers: str = ""
    log: str = ""
    exit_codes: dict[str, Literal["0", "1", "42"]] = msgspec.field(default_factory=dict)
    via: Transport = Transport.HEADLESS
    acp: AcpSettings | None = None

    @property
    def has_prompts(self) -> bool:
        """Whether it can ask before it acts: by arguments, or by default if arguments lift that."""
        may = self.permissions
        return not may.none and any((may.prompts, may.prompts_env, may.bypass, may.bypass_env))

    @property
    def new_instructions_file(self) -> str:
        """The instructions file to create if the project has none."""
        return self.creates or next(iter(self.instructions), "")

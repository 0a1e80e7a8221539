"""Pins: the programs that the git configuration may name, recorded at ``liza init``.

Agents can write ``.git/config``. A filter or a merge driver in it runs in the next ``git status`` of any process, even
with hooks off. So the keys that name a program are pinned with their values. A later value is overridden by a harmless
one and reported; if git has no harmless value for the key, git is not run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from liza.repo.runner import Git
from liza.rules.errors import GitFailed, Missing
from liza.rules.paths import Paths
from liza.rules.settings import are_valid
from liza.rules.value_classes import Value, field, replace
from liza.system import atomic, untrusted_files
from liza.system.locks import lock_path

# git's default for text: merges with an added driver use this instead.
_PLAIN_MERGE = "git merge-file -q --marker-size=%L %A %O %B"
_FAILING_COMMAND = "false"

# git asks all helpers in turn, also those of less specific keys. An empty value removes the helpers before it.
_CREDENTIAL_HELPER = r"credential(\..*)?\.helper"

# Keys that name a program, and the harmless value for each.
_PROGRAM_KEYS = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"merge\..*\.driver", _PLAIN_MERGE),
    (r"diff\..*\.textconv", "cat"),
    (_CREDENTIAL_HELPER, ""),
    (r"diff\.external|diff\..*\.command", _FAILING_COMMAND),
    (r"core\.(sshcommand|gitproxy|alternaterefscommand|editor|pager|askpass)", _FAILING_COMMAND),
    (r"gpg\.(.*\.)?program|gpg\.ssh\.defaultkeycommand", _FAILING_COMMAND),
    (r"sequence\.editor|interactive\.difffilter|pager\..*", _FAILING_COMMAND),
    (r"remote\..*\.(uploadpack|receivepack|vcs)|uploadpack\.packobjectshook", _FAILING_COMMAND),
    (r"(difftool|mergetool|guitool|man|browser)\..*\.(cmd|path)|(web|help)\.browser", _FAILING_COMMAND),
    (r"tar\..*\.command|trailer\..*\.(command|cmd)|hook\..*\.command", _FAILING_COMMAND),
    (r"submodule\..*\.update", "checkout"),
    # Not programs, but they hide changes from a merge or a status, or name a file that may be endless.
    (r"merge\.default", "text"),
    (r"core\.sparsecheckout(cone)?", "false"),
    (r"core\.(attributesfile|excludesfile)|mailmap\.file|diff\.orderfile", os.devnull),
    (r"lfs\.(customtransfer|extension)\..*\.(path|clean|smudge)", _FAILING_COMMAND),
)

# Reported, not overridden: the runner sets these itself, or each key that they include is checked.
_REPORT_ONLY_KEYS = (
    r"alias\..*|include\.path|includeif\..*\.path|core\.(hookspath|fsmonitor|worktree|bare)|init\.templatedir"
)

# Compiled on first use: most commands never look at a key, and compiling these takes 8 ms. `re` keeps what it compiled.
_FLAGS = re.IGNORECASE | re.DOTALL
_WATCHED_KEYS = "|".join([*(pattern for pattern, _ in _PROGRAM_KEYS), _REPORT_ONLY_KEYS])
_SUBSTITUTE_FILES = ("info/grafts", "objects/info/alternates", "commondir", "shallow")
_MAX_FILE_SIZE = 1 << 24  # bytes of a hook or a substitute file
_INCLUDE_KEYS = r"include(if\..*)?\.path"

# Values that name no program.
_HARMLESS_SETTINGS = (
    r"(core\.fsmonitor|pager\..*)=(true|false|yes|no|on|off|1|0)?|(alias|submodule)\.[^=]*=[^!].*"
    r"|core\.(bare|sparsecheckout(cone)?)=(false|no|off|0)|merge\.default=text"
)

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process that writes the pins."""
_RECAPTURE_COMMAND = "liza doctor --fix"
_SCOPES = ("system", "global", "local", "worktree")

ConfigValues = dict[str, tuple[str, ...]]
ConfigRow = tuple[str, str, str]
ConfigStamp = tuple[object, ...]


class _ConfigCache(Value):
    """Overrides computed from configuration files with this stamp. ``stamp`` is None if the files do not determine them
    (includes).
    """

    files: tuple[Path, ...]
    stamp: ConfigStamp | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    person: tuple[str, str] = ("", "")
    """Name and address of the committer; an empty string where none is configured."""


class PinViolation(Value):
    """A program, a replaced commit or a foreign repository in git's configuration that was not there at init.

    ``fix_command`` is the command for a person who did not add it.
    """

    message: str
    fix_command: str


class Pins(Value, dict=True):
    """Pinned configuration: keys that name a program with their values, hooks with a digest, and substitutes.

    Substitutes are files and refs that make git read another commit or another repository.
    """

    config: Mapping[str, tuple[str, ...]]
    hooks: Mapping[str, str]
    substitutes: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] | None = None
    """Board settings that a person has confirmed; None if none was ever confirmed."""
    origin: Mapping[str, Any] | None = None
    """The address of ``origin`` that a person has accepted, as a ``push_address.PushAddress``; None: no address."""

    @cached_property
    def _cache(self) -> dict[str, _ConfigCache]:
        """Overrides by the directory for which they were computed."""
        return {}

    @classmethod
    def capture(cls, git: Git) -> Pins:
        """Return pins for the current configuration. Raises GitFailed."""
        return cls(_find_programs(read_config(git)), _hash_hooks(git), _hash_substitutes(git))

    @classmethod
    def from_user_config(cls, git: Git) -> Pins:
        """Return pins that allow only programs configured outside the repository: its own configuration is not trusted
        yet. Raises GitFailed.
        """
        return cls(_find_programs(read_config(git, ("system", "global"))), {})

    @classmethod
    def load(cls, path: Path) -> Pins:
        """Return the saved pins. Raises Missing if the file is missing or invalid, NotRegularFile."""
        try:
            fields = json.loads(untrusted_files.read_record(path))
            config = {key: tuple(map(str, values)) for key, values in fields["config"].items()}
            substitutes, settings = dict(fields.get("substitutes", {})), fields.get("settings")
            if settings is not None and not are_valid(settings):
                raise ValueError("its settings are not valid")
            return cls(config, dict(fields["hooks"]), substitutes, settings, fields.get("origin"))
        except FileNotFoundError as error:
            raise Missing(f"the pinned configuration {path} is missing", _RECAPTURE_COMMAND) from error
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise Missing(f"the pinned configuration {path} cannot be read: {error}", _RECAPTURE_COMMAND) from error

    def save(self, paths: Paths) -> None:
        """Write the pins of a crew atomically. Raises OSError, LockTimeout."""
        config = {key: list(values) for key, values in sorted(self.config.items())}
        fields: dict[str, Any] = {"config": config, "hooks": dict(self.hooks), "substitutes": dict(self.substitutes)}
        fields |= {} if self.settings is None else {"settings": dict(self.settings)}
        fields |= {} if self.origin is None else {"origin": self.origin}
        # A process that confirms a setting reads the pins and writes them again: it must not write older ones back.
        with lock_path(paths.pins_lock, LOCK_TIMEOUT):
            atomic.write(paths.pins, f"{json.dumps(fields, indent=1)}\n".encode())

    def with_key(self, git: Git, key: str) -> Pins:
        """Return pins with the current values of one configuration key. Raises GitFailed."""
        config = {name: values for name, values in self.config.items() if name != key.lower()}
        today = {k: v for k, v in _find_programs(read_config(git)).items() if k == key}
        return replace(self, config={**config, **today})

    def find_added(self, git: Git) -> Mapping[str, tuple[str, ...]]:
        """Return all values of each configuration key that has a value from after init. Raises GitFailed."""
        current = _find_programs(read_config(git))
        return {key: values for key, values in current.items() if {*values} - {*self.config.get(key, ())}}

    def violation_messages(self, git: Git) -> tuple[str, ...]:
        """Return one line for each program that was added after init, for the alert. Raises GitFailed."""
        return tuple(violation.message for violation in self.find_violations(git))

    def find_violations(self, git: Git) -> tuple[PinViolation, ...]:
        """Return each violation of the pins with the command that removes it. Raises GitFailed."""
        rows = _read_rows(git)
        current = _find_programs(_group_by_key(rows))
        added = [
            PinViolation(f"git configuration {key} = {value!r}", _unset_command(rows, key, value))
            for key, values in sorted(current.items())
            for value in values
            if value not in self.config.get(key, ())
        ]
        removed = [
            PinViolation(f"git configuration {key} was removed", shlex.join(["git", "config", key, values[-1]]))
            for key, values in self.config.items()
            if _is_own_filter(key) and key not in current
        ]
        changed_hooks = [name for name, digest in sorted(_hash_hooks(git).items()) if self.hooks.get(name) != digest]
        substitutes = sorted(_hash_substitutes(git).items())
        changed_substitutes = [name for name, digest in substitutes if self.substitutes.get(name) != digest]
        common = git_dirs(git)[1]
        display_dir = Path(common.name) if common.parent == git.directory else common
        return (
            *added,
            *removed,
            *(PinViolation(f"git hook {name}", self._hook_fix(display_dir / "hooks", name)) for name in changed_hooks),
            *(PinViolation(f".git/{name}", _removal_command(display_dir, name)) for name in changed_substitutes),
        )

    def _hook_fix(self, hooks_dir: Path, name: str) -> str:
        # A hook from before init belongs to a person: only they know which lines are theirs.
        return shlex.join(["less" if name in self.hooks else "rm", str(hooks_dir / name)])

    def overrides(self, git: Git) -> Sequence[tuple[str, str]]:
        """Return key and value pairs that override the configuration that ``git`` reads. Raises GitFailed."""
        return self._read(git).pairs

    def person(self, git: Git) -> tuple[str, str]:
        """Return the configured name and address of the committer, each empty if not configured. Raises GitFailed."""
        return self._read(git).person

    def _read(self, git: Git) -> _ConfigCache:
        """Return what follows from the configuration that ``git`` reads, and read it only if its files have changed."""
        key = str(git.git_dir or git.directory)
        unpinned = git.unpinned()
        cached = self._cache.get(key) or _ConfigCache(config_files(unpinned))
        # Stamp before reading: a change during the read gives another stamp next time.
        stamp = _stamp_files(cached.files)
        same = cached if cached.stamp == stamp else self._find_same_files(cached.files, stamp)
        if same is not None:
            self._cache[key] = _ConfigCache(cached.files, stamp, same.pairs, same.person)
            return self._cache[key]
        settings = read_config(unpinned)
        pairs = tuple(self._neutralize(_find_programs(settings)))
        included = any(re.fullmatch(_INCLUDE_KEYS, key, _FLAGS) for key in settings)
        person = (_readable(settings, "user.name"), _readable(settings, "user.email"))
        self._cache[key] = _ConfigCache(cached.files, None if included else stamp, pairs, person)
        return self._cache[key]

    def _find_same_files(self, files: tuple[Path, ...], stamp: ConfigStamp) -> _ConfigCache | None:
        """Return what was read for another worktree whose configuration comes from the same files, else None.

        Files that do not exist do not count: usually a worktree has no configuration of its own.
        """
        existing = _existing_files(files, stamp)
        return next(
            (
                cached
                # A copy: the thread that measures a session runs git, too, and may add an entry meanwhile.
                for cached in tuple(self._cache.values())
                if cached.stamp is not None and _existing_files(cached.files, cached.stamp) == existing
            ),
            None,
        )

    def _neutralize(self, current: ConfigValues) -> list[tuple[str, str]]:
        """Return the overrides: pinned values, harmless values, and Liza's own filter if it was removed."""
        pairs: list[tuple[str, str]] = []
        helpers: list[tuple[str, str]] = []
        for key, values in current.items():
            pinned = self.config.get(key)
            value = next((harmless for pattern, harmless in _PROGRAM_KEYS if re.fullmatch(pattern, key, _FLAGS)), None)
            if value is None or pinned == values:
                continue
            if re.fullmatch(_CREDENTIAL_HELPER, key, _FLAGS):
                # A pinned value alone would be added to the list, and the added helper would still be asked.
                helpers = self._only_pinned_helpers()
            elif pinned:
                pairs += [(key, pinned[-1])]
            elif key.startswith("filter."):
                pairs += self._disable_filter(key)
            else:
                pairs += [(key, value)]
        own = [(key, values[-1]) for key, values in self.config.items() if _is_own_filter(key) and key not in current]
        return pairs + helpers + own

    def _only_pinned_helpers(self) -> list[tuple[str, str]]:
        """Return the overrides that empty the list of credential helpers, and add the pinned ones."""
        keys = (key for key in self.config if re.fullmatch(_CREDENTIAL_HELPER, key, _FLAGS))
        return [("credential.helper", ""), *((key, value) for key in keys for value in self.config[key])]

    def _disable_filter(self, key: str) -> list[tuple[str, str]]:
        """Return the overrides that disable an added filter. Raises GitFailed if it replaces a pinned one."""
        name, _, verb = key.rpartition(".")
        # An empty process disables a pinned clean or smudge: text would be stored unfiltered, without an error.
        if verb == "process" and any(f"{name}.{other}" in self.config for other in ("clean", "smudge")):
            raise GitFailed(
                f"{key} was added to a pinned filter, and git cannot be run without it",
                f"git config --unset-all {key}",
            )
        return [(key, ""), (f"{name}.required", "false")]


def _readable(settings: ConfigValues, key: str) -> str:
    """Return the value of a key as text, or an empty string. Bytes that are not UTF-8 are replaced."""
    return settings.get(key, ("",))[-1].encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()


def _is_own_filter(key: str) -> bool:
    return key.startswith("filter.liza-brief.")


def read_config(git: Git, scopes: Sequence[str] = _SCOPES) -> ConfigValues:
    """Return every setting in git's configuration files: key to values, in order; the last value counts."""
    return _group_by_key(_read_rows(git, scopes))


def _read_rows(git: Git, scopes: Sequence[str] = _SCOPES) -> list[ConfigRow]:
    """Return scope, key and value of every setting, in the order in which git reads them."""
    fields = git.unpinned().names("config", "--list", "--includes", "--show-scope", "-z")
    rows = ((scope, setting.partition("\n")) for scope, setting in zip(fields[::2], fields[1::2], strict=True))
    # The listing also has the runner's own settings, with the scope "command".
    return [(scope, key, value) for scope, (key, _, value) in rows if scope in scopes]


def _group_by_key(rows: Sequence[ConfigRow]) -> ConfigValues:
    """Return the values of each key, in order."""
    values_by_key: dict[str, list[str]] = {}
    for _, key, value in rows:
        values_by_key.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in values_by_key.items()}


def _unset_command(rows: Sequence[ConfigRow], key: str, value: str) -> str:
    """Return the command that removes one value of a key from the file that sets it."""
    scope = next((scope for scope, *setting in reversed(rows) if setting == [key, value]), "local")
    option = [] if scope == "local" else [f"--{scope}"]
    return shlex.join(["git", "config", *option, "--fixed-value", "--unset-all", key, value])


def _removal_command(git_dir: Path, name: str) -> str:
    """Return the command that removes a substitute."""
    if name.startswith("refs/replace/"):
        return shlex.join(["git", "replace", "-d", name.rpartition("/")[2]])
    return "git fetch --unshallow" if name == "shallow" else shlex.join(["rm", str(git_dir / name)])


def _find_programs(settings: ConfigValues) -> ConfigValues:
    """Return the settings that name a program or change what git reads, without harmless values."""
    named = {
        key: tuple(value for value in values if not re.fullmatch(_HARMLESS_SETTINGS, f"{key}={value}", _FLAGS))
        for key, values in settings.items()
        if re.fullmatch(_WATCHED_KEYS, key, _FLAGS)
    }
    return {key: values for key, values in named.items() if values}


def config_files(git: Git) -> tuple[Path, ...]:
    """Return the files that git's configuration can come from, existing or not, without included files. Raises
    GitFailed.
    """
    git_dir, common = git_dirs(git)
    home = Path.home()
    global_file = os.environ.get("GIT_CONFIG_GLOBAL")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config"
    user_files = (Path(global_file),) if global_file else (home / ".gitconfig", xdg)
    system = tuple(Path(top) / "etc" / "gitconfig" for top in ("/", "/usr/local", "/opt/homebrew"))
    system_file = os.environ.get("GIT_CONFIG_SYSTEM")
    return (
        common / "config",
        git_dir / "config.worktree",
        *user_files,
        *((Path(system_file),) if system_file else system),
    )


def git_dirs(git: Git) -> tuple[Path, Path]:
    """Return the git directory of a worktree and the one that all worktrees share. Raises GitFailed."""
    if git.git_dir is not None and git.common_dir is not None:
        return git.git_dir, git.common_dir
    if git.git_dir is not None and (git.git_dir / "commondir").is_file():
        return git.git_dir, (git.git_dir / (git.git_dir / "commondir").read_text().strip()).resolve()
    lines = git.unpinned().out("rev-parse", "--absolute-git-dir", "--git-common-dir").split("\n")
    return Path(lines[0]), (git.directory / lines[1]).resolve()


def _existing_files(files: Sequence[Path], stamp: ConfigStamp) -> list[tuple[Path, object]]:
    return [pair for pair in zip(files, stamp, strict=True) if pair[1] is not None]


def _stamp_files(files: Sequence[Path]) -> ConfigStamp:
    return tuple(_stamp_file(path) for path in files)


def _stamp_file(path: Path) -> object:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _hash_hooks(git: Git) -> dict[str, str]:
    """Return a digest of each hook that git would run. Samples do not run."""
    hooks_dir = git_dirs(git)[1] / "hooks"
    if not hooks_dir.is_dir():
        return {}
    files = [path for path in hooks_dir.iterdir() if path.is_file() and path.suffix != ".sample"]
    return {path.name: _hash_file(path.resolve()) for path in files if os.access(path, os.X_OK)}


def _hash_substitutes(git: Git) -> dict[str, str]:
    """Return a digest of each file and ref that makes git read another commit or another repository."""
    common = git_dirs(git)[1]
    files = {name: common / name for name in _SUBSTITUTE_FILES if os.path.lexists(common / name)}
    # A fetch may change `shallow`, so only its existence is compared.
    digests = {name: "there" if name == "shallow" else _hash_file(path) for name, path in files.items()}
    rows = git.unpinned().lines("for-each-ref", "--format=%(refname) %(objectname)", "refs/replace")
    return digests | dict(row.split(" ", 1) for row in rows)


def _hash_file(path: Path) -> str:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_FILE_SIZE:
        return "no plain file"  # stored in the pins: changing it would report every such file as changed
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""Which programs the git configuration may name: those of the day of ``liza init``.

Everything that works in the crew can write ``.git/config``, and a filter or a merge driver written there runs in the
next ``git status`` of anybody, hooks off or not. So the keys that name a program are pinned with their values; what
came later is laid over with something harmless, or refused where git has nothing harmless to offer, and reported.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from liza.repo.runner import Git
from liza.rules.errors import GitFailed, Missing
from liza.rules.settings import are_valid
from liza.system import small_file

# What git does with text when no driver is named: the planted driver's merges go on without it.
_PLAIN_MERGE = "git merge-file -q --marker-size=%L %A %O %B"
_FAILING_COMMAND = "false"

_PROGRAM_KEYS = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"merge\..*\.driver", _PLAIN_MERGE),
    (r"diff\..*\.textconv", "cat"),
    (r"credential(\..*)?\.helper", ""),
    (r"diff\.external|diff\..*\.command", _FAILING_COMMAND),
    (r"core\.(sshcommand|gitproxy|alternaterefscommand|editor|pager|askpass)", _FAILING_COMMAND),
    (r"gpg\.(.*\.)?program|gpg\.ssh\.defaultkeycommand", _FAILING_COMMAND),
    (r"sequence\.editor|interactive\.difffilter|pager\..*", _FAILING_COMMAND),
    (r"remote\..*\.(uploadpack|receivepack|vcs)|uploadpack\.packobjectshook", _FAILING_COMMAND),
    (r"(difftool|mergetool|guitool|man|browser)\..*\.(cmd|path)|(web|help)\.browser", _FAILING_COMMAND),
    (r"tar\..*\.command|trailer\..*\.(command|cmd)|hook\..*\.command", _FAILING_COMMAND),
    (r"submodule\..*\.update", "checkout"),
    # No programs, but they hide what was not merged or not looked at, or have a file read that never ends.
    (r"merge\.default", "text"),
    (r"core\.sparsecheckout(cone)?", "false"),
    (r"core\.(attributesfile|excludesfile)|mailmap\.file|diff\.orderfile", os.devnull),
    (r"lfs\.(customtransfer|extension)\..*\.(path|clean|smudge)", _FAILING_COMMAND),
)

# Said, but not laid over: the runner answers these by itself, or what they bring in is judged key by key.
_REPORT_ONLY_KEYS = (
    r"alias\..*|include\.path|includeif\..*\.path|core\.(hookspath|fsmonitor|worktree|bare)|init\.templatedir"
)

_HARMLESS_VALUES = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), harmless) for pattern, harmless in _PROGRAM_KEYS
)
_WATCHED_KEYS = re.compile(
    "|".join([*(pattern for pattern, _ in _PROGRAM_KEYS), _REPORT_ONLY_KEYS]), re.IGNORECASE | re.DOTALL
)
_SUBSTITUTE_FILES = ("info/grafts", "objects/info/alternates", "commondir", "shallow")
_MAX_FILE_SIZE = 1 << 24
_INCLUDE_KEYS = re.compile(r"include(if\..*)?\.path", re.IGNORECASE | re.DOTALL)

# Values that name no program.
_HARMLESS_SETTINGS = re.compile(
    r"(core\.fsmonitor|pager\..*)=(true|false|yes|no|on|off|1|0)?|(alias|submodule)\.[^=]*=[^!].*"
    r"|core\.(bare|sparsecheckout(cone)?)=(false|no|off|0)|merge\.default=text",
    re.IGNORECASE | re.DOTALL,
)

_TAKE_AGAIN = "liza doctor --fix"
_SCOPES = ("system", "global", "local", "worktree")

ConfigValues = dict[str, tuple[str, ...]]
ConfigRow = tuple[str, str, str]
ConfigStamp = tuple[object, ...]


@dataclass(frozen=True)
class _ConfigCache:
    """What the configuration of one place said when its files had this stamp; None where that cannot be trusted."""

    files: tuple[Path, ...]
    stamp: ConfigStamp | None = None
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PinViolation:
    """Something that names a program, or stands for another commit, and was not there at init; ``mend``: the command
    for a person who did not put it there."""

    message: str
    fix_command: str


@dataclass(frozen=True)
class Pins:
    """Keys that name a program, with the values they had; hooks, with the digest of their text; and what else has
    git take one commit, or one repository, for another."""

    config: Mapping[str, tuple[str, ...]]
    hooks: Mapping[str, str]
    substitutes: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] | None = None
    """What a person has confirmed of the board's settings; None where nothing ever was."""
    reviewed: Mapping[str, int] = field(default_factory=dict)
    """Until when (seconds since the epoch) a person has accepted what sessions did to a ref; ``*``: to every one."""
    _cache: dict[str, _ConfigCache] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def capture(cls, git: Git) -> Pins:
        """The pins of today. Raises GitFailed."""
        return cls(_find_programs(_read_config(git)), _hash_hooks(git), _hash_substitutes(git))

    @classmethod
    def from_user_config(cls, git: Git) -> Pins:
        """Pins under which only what stands outside the repository may run: nobody has said yet that its own
        configuration is to be believed. Raises GitFailed."""
        return cls(_find_programs(_read_config(git, ("system", "global"))), {})

    @classmethod
    def load(cls, path: Path) -> Pins:
        """The pins that were saved. Raises Missing where there are none or they cannot be read, GitFailed where what
        stands there is no file."""
        try:
            words = json.loads(small_file.read_small_file(path))
            config = {key: tuple(map(str, values)) for key, values in words["config"].items()}
            substitutes, confirmed = dict(words.get("substitutes", {})), words.get("settings")
            reviewed = {ref: int(until) for ref, until in words.get("reviewed", {}).items()}
            if confirmed is not None and not are_valid(confirmed):
                raise ValueError("its settings are none that liza has written")
            return cls(config, dict(words["hooks"]), substitutes, confirmed, reviewed)
        except FileNotFoundError as error:
            raise Missing(f"the pinned configuration {path} is gone", _TAKE_AGAIN) from error
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise Missing(f"the pinned configuration {path} cannot be read: {error}", _TAKE_AGAIN) from error

    def save(self, path: Path) -> None:
        """Write the pins aside, then rename: a reader sees the old or the new ones."""
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        config = {key: list(values) for key, values in sorted(self.config.items())}
        words: dict[str, Any] = {"config": config, "hooks": dict(self.hooks), "substitutes": dict(self.substitutes)}
        words |= {} if self.settings is None else {"settings": dict(self.settings)}
        words |= {"reviewed": dict(self.reviewed)} if self.reviewed else {}
        aside.write_text(json.dumps(words, indent=1) + "\n")
        aside.replace(path)

    def with_key(self, git: Git, key: str) -> Pins:
        """These pins, with what the configuration says about one key today."""
        config = {name: values for name, values in self.config.items() if name != key.lower()}
        today = {k: v for k, v in _find_programs(_read_config(git)).items() if k == key}
        return Pins({**config, **today}, self.hooks, self.substitutes, self.settings, self.reviewed)

    def violation_messages(self, git: Git) -> tuple[str, ...]:
        """What names a program now and did not at init, a line each, for the alert. Raises GitFailed."""
        return tuple(one.message for one in self.find_violations(git))

    def find_violations(self, git: Git) -> tuple[PinViolation, ...]:
        """The same, each with the command that takes it away. Raises GitFailed."""
        rows = _read_rows(git)
        now = _find_programs(_group_by_key(rows))
        came = [
            PinViolation(f"git configuration {key} = {value!r}", _unset_command(rows, key, value))
            for key, values in sorted(now.items())
            for value in values
            if value not in self.config.get(key, ())
        ]
        gone = [
            PinViolation(f"git configuration {key} was removed", shlex.join(["git", "config", key, values[-1]]))
            for key, values in self.config.items()
            if _is_own_filter(key) and key not in now
        ]
        hooks = [name for name, digest in sorted(_hash_hooks(git).items()) if self.hooks.get(name) != digest]
        standing = sorted(_hash_substitutes(git).items())
        others = [name for name, digest in standing if self.substitutes.get(name) != digest]
        common = git_dirs(git)[1]
        place = Path(common.name) if common.parent == git.directory else common
        return (
            *came,
            *gone,
            *(PinViolation(f"git hook {name}", self._hook_fix(place / "hooks", name)) for name in hooks),
            *(PinViolation(f".git/{name}", _removal_command(place, name)) for name in others),
        )

    def _hook_fix(self, place: Path, name: str) -> str:
        # One that was there at init is a person's own; only they can say which of its lines are theirs.
        return shlex.join(["less" if name in self.hooks else "rm", str(place / name)])

    def overrides(self, git: Git) -> Sequence[tuple[str, str]]:
        """Key and value pairs to lay over the configuration that ``git`` would see. Raises GitFailed."""
        place = str(git.git_dir or git.directory)
        plain = git.unpinned()
        known = self._cache.get(place) or _ConfigCache(config_files(plain))
        # Looked at before the reading: what changes during it is seen as changed the next time.
        stamp = _stamp_files(known.files)
        if known.stamp == stamp:
            return known.pairs
        settings = _read_config(plain)
        pairs = tuple(self._neutralize(_find_programs(settings)))
        included = any(_INCLUDE_KEYS.fullmatch(key) for key in settings)
        self._cache[place] = _ConfigCache(known.files, None if included else stamp, pairs)
        return pairs

    def _neutralize(self, now: ConfigValues) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] = []
        for key, values in now.items():
            pinned = self.config.get(key)
            value = next((harmless for pattern, harmless in _HARMLESS_VALUES if pattern.fullmatch(key)), None)
            if value is None or pinned == values:
                continue
            if pinned:
                pairs += [(key, pinned[-1])]
            elif key.startswith("filter."):
                pairs += self._disable_filter(key)
            else:
                pairs += [(key, value)]
        return pairs + [
            (key, values[-1]) for key, values in self.config.items() if _is_own_filter(key) and key not in now
        ]

    def _disable_filter(self, key: str) -> list[tuple[str, str]]:
        name, _, verb = key.rpartition(".")
        # An empty process hides a pinned clean or smudge: text would go in unfiltered, and nothing would be said.
        if verb == "process" and any(f"{name}.{other}" in self.config for other in ("clean", "smudge")):
            raise GitFailed(
                f"{key} was planted over a filter of yours, and git cannot be run without it",
                f"git config --unset-all {key}",
            )
        return [(key, ""), (f"{name}.required", "false")]


def _is_own_filter(key: str) -> bool:
    return key.startswith("filter.liza-brief.")


def _read_config(git: Git, scopes: Sequence[str] = _SCOPES) -> ConfigValues:
    """Every setting in a file that git would see, key to values in order; the last one counts."""
    return _group_by_key(_read_rows(git, scopes))


def _read_rows(git: Git, scopes: Sequence[str] = _SCOPES) -> list[ConfigRow]:
    """Scope, key and value of every setting, in the order in which git reads them."""
    words = git.unpinned().names("config", "--list", "--includes", "--show-scope", "-z")
    found = ((scope, word.partition("\n")) for scope, word in zip(words[::2], words[1::2], strict=True))
    # The runner's own settings are in the listing too, as of the scope "command".
    return [(scope, key, value) for scope, (key, _, value) in found if scope in scopes]


def _group_by_key(rows: Sequence[ConfigRow]) -> ConfigValues:
    found: dict[str, list[str]] = {}
    for _, key, value in rows:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def _unset_command(rows: Sequence[ConfigRow], key: str, value: str) -> str:
    scope = next((where for where, *setting in reversed(rows) if setting == [key, value]), "local")
    where = [] if scope == "local" else [f"--{scope}"]
    return shlex.join(["git", "config", *where, "--fixed-value", "--unset-all", key, value])


def _removal_command(place: Path, name: str) -> str:
    if name.startswith("refs/replace/"):
        return shlex.join(["git", "replace", "-d", name.rpartition("/")[2]])
    return "git fetch --unshallow" if name == "shallow" else shlex.join(["rm", str(place / name)])


def _find_programs(settings: ConfigValues) -> ConfigValues:
    named = {
        key: tuple(value for value in values if not _HARMLESS_SETTINGS.fullmatch(f"{key}={value}"))
        for key, values in settings.items()
        if _WATCHED_KEYS.fullmatch(key)
    }
    return {key: values for key, values in named.items() if values}


def config_files(git: Git) -> tuple[Path, ...]:
    """The files that git's configuration can come from, there or not, without those that they include."""
    own, common = git_dirs(git)
    home = Path.home()
    chosen = os.environ.get("GIT_CONFIG_GLOBAL")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config"
    mine = (Path(chosen),) if chosen else (home / ".gitconfig", xdg)
    system = tuple(Path(top) / "etc" / "gitconfig" for top in ("/", "/usr/local", "/opt/homebrew"))
    named = os.environ.get("GIT_CONFIG_SYSTEM")
    return (common / "config", own / "config.worktree", *mine, *((Path(named),) if named else system))


def git_dirs(git: Git) -> tuple[Path, Path]:
    """The git directory of a work tree, and the one that all work trees share. Raises GitFailed."""
    if git.git_dir is not None and git.common_dir is not None:
        return git.git_dir, git.common_dir
    if git.git_dir is not None and (git.git_dir / "commondir").is_file():
        return git.git_dir, (git.git_dir / (git.git_dir / "commondir").read_text().strip()).resolve()
    words = git.unpinned().out("rev-parse", "--absolute-git-dir", "--git-common-dir").split("\n")
    return Path(words[0]), (git.directory / words[1]).resolve()


def _stamp_files(files: Sequence[Path]) -> ConfigStamp:
    return tuple(_stamp_file(path) for path in files)


def _stamp_file(path: Path) -> object:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _hash_hooks(git: Git) -> dict[str, str]:
    """The hooks of the repository that would run, with a digest each; samples do not run."""
    place = git_dirs(git)[1] / "hooks"
    if not place.is_dir():
        return {}
    real = [path for path in place.iterdir() if path.is_file() and path.suffix != ".sample"]
    return {path.name: _hash_file(path.resolve()) for path in real if os.access(path, os.X_OK)}


def _hash_substitutes(git: Git) -> dict[str, str]:
    """Files and refs that have git take one commit, or one repository, for another; a digest each."""
    common = git_dirs(git)[1]
    files = {name: common / name for name in _SUBSTITUTE_FILES if os.path.lexists(common / name)}
    # A fetch may deepen a shallow clone; that it became one is news.
    found = {name: "there" if name == "shallow" else _hash_file(path) for name, path in files.items()}
    rows = git.unpinned().lines("for-each-ref", "--format=%(refname) %(objectname)", "refs/replace")
    return found | dict(row.split(" ", 1) for row in rows)


def _hash_file(path: Path) -> str:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_FILE_SIZE:
        return "no plain file"
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""Which programs are shells that carry out what is typed into them. Pure.

Whatever has a shell's name is one, unless its words say surely that it runs a script or a command: an option that is
not known might take the next word for its value, so behind one nothing is sure.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

BOURNE = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "rzsh", "rksh", "ksh93", "lksh", "oksh", "pdksh",
    "yash", "posh", "osh", "hush",
})  # fmt: skip
SHELLS = BOURNE | {"fish", "csh", "tcsh", "nu", "pwsh", "elvish", "xonsh", "rc", "es", "nix-shell"}
_MULTICALL = frozenset({"busybox", "toybox"})
_WRAPPERS = frozenset({
    "env", "nice", "nohup", "timeout", "setsid", "stdbuf", "sudo", "doas", "su", "script", "unshare", "chroot",
})  # fmt: skip
_SHELL_WRAPPERS = frozenset({"su", "script"})  # they start a shell unless they are told a command
# Of any of these shells: a letter that means something else in another one is left out, and so are -s and -t.
_FLAG_LETTERS = frozenset("abefhiklmnpruvxBCEHP")
_FLAG_NAMES = frozenset({"norc", "noprofile", "login", "posix", "restricted", "verbose", "noediting"})
_VALUE_OPTIONS = frozenset({"rcfile", "init-file"})
_COMMAND_OPTIONS = frozenset({"-c", "--command", "--commands"})
_NO_FILES = re.compile(r"/+(dev|proc)(/|$)")


def is_shell(words: Sequence[str]) -> bool:
    """Whether this is a shell that carries out what is typed; one that runs a script or a command is none."""
    if not words:
        return False
    name, more = program_name(words[0]), words[1:]
    if name in _MULTICALL:
        return not more or is_shell(more)
    if name in _WRAPPERS:
        return _wraps_shell(name, more)
    return name in SHELLS and not (_runs_bourne(more) if name in BOURNE else _runs_other(more))


def program_name(word: str) -> str:
    """The name of a program by its first word; a login shell has a dash before it."""
    return word.rpartition("/")[2].removeprefix("-")


def reveal_shell(words: tuple[str, ...], executable: str) -> tuple[str, ...]:
    """A process's words, with what it truly is in front where that is a shell that goes by another name."""
    really = (executable, *words[1:])
    return (
        really if words and not is_shell(words) and program_name(executable) in SHELLS and is_shell(really) else words
    )


def _wraps_shell(name: str, more: Sequence[str]) -> bool:
    """Whether what starts another program started a shell, wherever among its words that begins."""
    if any(is_shell(more[at:]) for at in range(len(more))):
        return True
    return name in _SHELL_WRAPPERS and not any(re.match("-[a-z]*c|--command", word) for word in more)


def _runs_other(more: Sequence[str]) -> bool:
    """Whether a shell whose options are not known runs a script, or a command."""
    return bool(more) and (more[0] in _COMMAND_OPTIONS or _is_script(more[0]))


def _runs_bourne(more: Sequence[str]) -> bool:
    """Whether a shell in the manner of sh surely runs a script, or a command."""
    at = 0
    while at < len(more):
        word = more[at]
        if word in ("-", "--"):
            return at + 1 < len(more) and not _NO_FILES.match(posixpath.normpath(more[at + 1]))
        if not word.startswith(("-", "+")):
            return _is_script(word)
        if word.lstrip("-") in _FLAG_NAMES:
            at += 1
            continue
        if word.lstrip("-") in _VALUE_OPTIONS:
            at += 2
            continue
        # The value of -o and -O is the next word in one shell, and the rest of this one in another.
        letters, takes = (word[1:-1], 1) if word[-1] in "oO" else (word[1:], 0)
        if word[0] == "-" and "c" in letters and set(letters) <= _FLAG_LETTERS | {"c"}:
            return True
        if not set(letters) <= _FLAG_LETTERS:
            return False
        at += 1 + takes
    return False


def _is_script(word: str) -> bool:
    """Whether a word names a file: what lies in /dev and /proc may be the terminal itself."""
    return bool(word) and not word.startswith(("-", "+")) and not _NO_FILES.match(posixpath.normpath(word))

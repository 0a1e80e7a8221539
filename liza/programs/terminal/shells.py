"""Recognise shells that execute what is typed into them. Pure.

A program with a shell's name counts as one, unless its arguments prove that it runs a script or a command. An unknown
option may take the next argument as its value, so nothing after it is proof.
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
_SHELL_WRAPPERS = frozenset({"su", "script"})  # they start a shell unless a command is given
# Valid in all of these shells. Letters with another meaning in one of them are left out, and so are -s and -t.
_FLAG_LETTERS = frozenset("abefhiklmnpruvxBCEHP")
_FLAG_NAMES = frozenset({"norc", "noprofile", "login", "posix", "restricted", "verbose", "noediting"})
_VALUE_OPTIONS = frozenset({"rcfile", "init-file"})
_COMMAND_OPTIONS = frozenset({"-c", "--command", "--commands"})
_NO_FILES = re.compile(r"/+(dev|proc)(/|$)")


def is_shell(words: Sequence[str]) -> bool:
    """Return whether this is a shell that executes what is typed; a shell that runs a script or a command is not."""
    if not words:
        return False
    name, arguments = program_name(words[0]), words[1:]
    if name in _MULTICALL:
        return not arguments or is_shell(arguments)
    if name in _WRAPPERS:
        return _wraps_shell(name, arguments)
    return name in SHELLS and not (_runs_bourne(arguments) if name in BOURNE else _runs_other(arguments))


def program_name(word: str) -> str:
    """Return the name of a program from its first argument; a login shell has a dash before it."""
    return word.rpartition("/")[2].removeprefix("-")


def reveal_shell(words: tuple[str, ...], executable: str) -> tuple[str, ...]:
    """Return the argv, with the executable in front if that is a shell under another name."""
    revealed = (executable, *words[1:])
    return (
        revealed
        if words and not is_shell(words) and program_name(executable) in SHELLS and is_shell(revealed)
        else words
    )


def _wraps_shell(name: str, more: Sequence[str]) -> bool:
    """Return whether a wrapper starts a shell: one may begin at any of its arguments."""
    if any(is_shell(more[at:]) for at in range(len(more))):
        return True
    return name in _SHELL_WRAPPERS and not any(re.match("-[a-z]*c|--command", word) for word in more)


def _runs_other(more: Sequence[str]) -> bool:
    """Return whether a shell with unknown options runs a script or a command."""
    return bool(more) and (more[0] in _COMMAND_OPTIONS or _is_script(more[0]))


def _runs_bourne(more: Sequence[str]) -> bool:
    """Return whether a Bourne-like shell certainly runs a script or a command."""
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
        # The value of -o and -O is the next argument in one shell, and the rest of this one in another.
        letters, takes = (word[1:-1], 1) if word[-1] in "oO" else (word[1:], 0)
        if word[0] == "-" and "c" in letters and set(letters) <= _FLAG_LETTERS | {"c"}:
            return True
        if not set(letters) <= _FLAG_LETTERS:
            return False
        at += 1 + takes
    return False


def _is_script(word: str) -> bool:
    """Return whether an argument names a file; paths in /dev and /proc may be the terminal itself."""
    return bool(word) and not word.startswith(("-", "+")) and not _NO_FILES.match(posixpath.normpath(word))

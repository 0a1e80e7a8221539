"""The real programs: where each comes from, and what tells it to ask the scripted model instead of a vendor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CACHE = Path(os.environ.get("REAL_PROGRAMS") or Path(__file__).parents[2] / ".liza-real")
KEY = "sk-dummy"


@dataclass(frozen=True)
class Rig:
    """One program. ``home``: files below HOME, ``env``: variables, both with PORT in them; ``words``: more of its own.

    ``after``: what its package wants run after the installation, for npm may run no scripts of packages.
    """

    name: str
    package: str
    binary: str
    after: str = ""
    home: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    python: str = ""

    @property
    def place(self) -> Path:
        """Where it is installed, alone."""
        return CACHE / self.package.replace("/", "_").replace("==", "@")

    @property
    def path(self) -> Path:
        """Its executable."""
        return self.place / ("bin" if self.python else "node_modules/.bin") / self.binary

    def settle(self, home: Path, port: int) -> dict[str, str]:
        """Write its settings below ``home``; the variables that it needs."""
        for name, text in self.home.items():
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("PORT", str(port)))
        return {name: value.replace("PORT", str(port)) for name, value in self.env.items()}


def install(rig: Rig, say: Callable[[str], None] = lambda text: None) -> str | None:
    """Install it where it is not; why it cannot be, if it cannot."""
    if (rig.place / "installed").exists():
        return None
    shutil.rmtree(rig.place, ignore_errors=True)
    rig.place.mkdir(parents=True)
    env = {**os.environ, "HOME": str(CACHE / "home"), "npm_config_cache": str(CACHE / "npm-cache")}
    env["PIP_CACHE_DIR"] = str(CACHE / "pip-cache")
    Path(env["HOME"]).mkdir(exist_ok=True)
    say(f"installing {rig.package}")
    for words in _steps(rig):
        try:
            done = subprocess.run(
                words, cwd=rig.place, env=env, capture_output=True, text=True, timeout=900, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{words[0]}: {error}"
        if done.returncode:
            return f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-500:]}"
    if not rig.path.exists():
        return f"{rig.package} has no {rig.binary}"
    (rig.place / "installed").touch()
    return None


def _steps(rig: Rig) -> list[list[str]]:
    if rig.python:
        made = str(rig.place / "bin" / "python")
        uv = shutil.which("uv")
        if uv:
            return [
                [uv, "venv", "-q", "--clear", "--python", rig.python, "."],
                [uv, "pip", "install", "-q", "--python", made, rig.package],
            ]
        found = _python(rig.python)
        return [[found, "-m", "venv", "."], [made, "-m", "pip", "install", "-q", rig.package]]
    steps = [["npm", "install", "--prefix", ".", "--no-audit", "--no-fund", "--ignore-scripts", rig.package]]
    return [*steps, ["sh", "-c", rig.after]] if rig.after else steps


def _python(version: str) -> str:
    """An interpreter of this version: this one, or one of PATH; a version manager's stand-in has to be asked."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    name = f"python{version}"
    found = shutil.which(name)
    if found is None:
        return name
    kept = sorted(Path(found).parents[1].glob(f"versions/{version}.*/bin/{name}"))
    return str(kept[-1]) if kept else found


_CODEX = """\
model = "scripted-model"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:PORT/v1"
wire_api = "responses"
env_key = "OPENAI_SCRIPTED_KEY"
"""
_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": "scripted/scripted-model",
    "small_model": "scripted/scripted-model",
    "provider": {
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": "http://127.0.0.1:PORT/v1", "apiKey": KEY},
            "models": {
                name: {"name": name, "limit": {"context": 100000, "output": 8000}}
                for name in ("scripted-model", "other-model")
            },
        }
    },
}
_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}
_QWEN = {
    "security": {"auth": {"selectedType": "openai"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}
_PI = {
    "providers": {
        "scripted": {
            "baseUrl": "http://127.0.0.1:PORT/v1",
            "api": "openai-completions",
            "apiKey": KEY,
            "models": [{"id": "scripted-model"}, {"id": "other-model"}],
        }
    }
}
_PI_SETTINGS = {"defaultProvider": "scripted", "defaultModel": "scripted-model"}
_VIBE = """\
active_model = "scripted"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "scripted"
api_base = "http://127.0.0.1:PORT/v1"
api_key_env_var = "MISTRAL_SCRIPTED_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "scripted-model"
provider = "scripted"
alias = "scripted"
[[models]]
name = "other-model"
provider = "scripted"
alias = "other"
"""

RIGS = {
    rig.name: rig
    for rig in (
        Rig(
            "codex",
            "@openai/codex@0.169.0",
            "codex",
            home={".codex/config.toml": _CODEX},
            env={"OPENAI_SCRIPTED_KEY": KEY},
        ),
        Rig(
            "gemini",
            "@google/gemini-cli@0.61.0",
            "gemini",
            home={".gemini/settings.json": json.dumps(_GEMINI)},
            env={
                "GEMINI_API_KEY": KEY,
                "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:PORT",
                "GEMINI_MODEL": "gemini-2.5-flash",
            },
        ),
        Rig(
            "opencode",
            "opencode-ai@1.18.33",
            "opencode",
            after="node node_modules/opencode-ai/postinstall.mjs",
            home={".config/opencode/opencode.json": json.dumps(_OPENCODE)},
            env={
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                # With a plugin it asks npm for that one's own library, and waits until it learns that nobody is there.
                "npm_config_fetch_retries": "0",
                "npm_config_registry": "http://127.0.0.1:9/",
            },
        ),
        Rig(
            "qwen",
            "@qwen-code/qwen-code@0.15.10",
            "qwen",
            home={".qwen/settings.json": json.dumps(_QWEN)},
            env={
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": "http://127.0.0.1:PORT/v1",
                "OPENAI_MODEL": "scripted-model",
            },
        ),
        Rig(
            "copilot",
            "@github/copilot@1.0.102",
            "copilot",
            env={
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:PORT/v1",
                "COPILOT_PROVIDER_API_KEY": KEY,
                "COPILOT_MODEL": "scripted-model",
                "COPILOT_PROVIDER_TYPE": "openai",
                "COPILOT_PROVIDER_WIRE_API": "completions",
            },
        ),
        Rig(
            "pi",
            "@mariozechner/pi-coding-agent@0.73.1",
            "pi",
            home={".pi/agent/models.json": json.dumps(_PI), ".pi/agent/settings.json": json.dumps(_PI_SETTINGS)},
            env={"PI_OFFLINE": "1"},
        ),
        Rig(
            "vibe",
            "mistral-vibe==3.0.2",
            "vibe",
            python="3.12",
            home={".vibe/config.toml": _VIBE},
            env={"MISTRAL_SCRIPTED_KEY": KEY},
        ),
        Rig(
            "aider",
            "aider-chat==0.86.2",
            "aider",
            python="3.11",
            env={
                "OPENAI_API_KEY": KEY,
                "OPENAI_API_BASE": "http://127.0.0.1:PORT/v1",
                "AIDER_MODEL": "openai/scripted-model",
                "AIDER_EDIT_FORMAT": "diff",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
        ),
        Rig(
            "amp", "@sourcegraph/amp@0.0.1790142911-g7618fb", "amp", after="node node_modules/@ampcode/cli/install.cjs"
        ),
        Rig("auggie", "@augmentcode/auggie@0.36.0", "auggie"),
        Rig(
            "claude",
            "@anthropic-ai/claude-code@2.1.197",
            "claude",
            after="node node_modules/@anthropic-ai/claude-code/install.cjs",
            env={
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:PORT",
                "ANTHROPIC_API_KEY": KEY,
                "IS_SANDBOX": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
        ),
        # Adapters: each brings the program itself, and is started instead of it.
        Rig(
            "claude:acp",
            "@agentclientprotocol/claude-agent-acp@0.49.0",
            "claude-agent-acp",
            env={
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:PORT",
                "ANTHROPIC_API_KEY": KEY,
                "IS_SANDBOX": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
        ),
        Rig(
            "codex:acp",
            "@agentclientprotocol/codex-acp@2.6.0",
            "codex-acp",
            home={".codex/config.toml": _CODEX},
            env={"OPENAI_SCRIPTED_KEY": KEY},
        ),
    )
}


def main() -> int:
    """Install what is missing, and say what could not be."""
    CACHE.mkdir(parents=True, exist_ok=True)
    failed = {rig.name: why for rig in RIGS.values() if (why := install(rig, print)) is not None}
    for name, why in failed.items():
        print(f"{name} cannot be installed: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

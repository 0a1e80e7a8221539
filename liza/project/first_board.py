"""The text of the first board of a crew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from liza.model.configuration import FULL_CHECKOUT, Config
from liza.project.baseline import Baseline, InitOptions
from liza.text.formats import format_time

_FILE_HEAD: Final = (
    "# The board of this crew. People and agents may edit it while they hold the lock:",
    "#   liza edit      or      flock .liza/state.yaml.lock $EDITOR .liza/state.yaml",
    "# A session hands in what its verbs could change: liza lock -- CMD, or liza edit --from -",
)
_SERVER_HEAD: Final = (
    "# The board of this crew. It is in PostgreSQL, and people edit it from any clone that joined:",
    "#   liza edit",
    "# A session hands in what its verbs could change: liza edit --from -",
)


def format_board(
    goal: str, spec: str, options: InitOptions, baseline: Baseline, generated: Mapping[str, str], now: datetime
) -> str:
    """Return the text. Every JSON string is a YAML string, so JSON quotes the person's input safely.

    ``generated``: ``config.generated``.
    """
    lines = [
        *(_FILE_HEAD if options.board is None else _SERVER_HEAD),
        "version: 1",
        "revision: 1",
        "goal:",
        '  id: "goal"',
        f"  description: {json.dumps(goal, ensure_ascii=False)}",
        f"  spec_ref: {json.dumps(spec, ensure_ascii=False)}",
        f'  created: "{format_time(now)}"',
        "  status: IN_PROGRESS",
        "tasks: []",
        "agents: {}",
        "discovered: []",
        "handoff: {}",
        "anomalies: []",
        "human_notes: []",
        "spec_changes: []",
        "sprint:",
        '  id: "sprint-1"',
        "  timeline:",
        f'    started: "{format_time(now)}"',
        "  status: IN_PROGRESS",
        "circuit_breaker:",
        "  status: OK",
        "config:",
        "  max_coder_iterations: 10",
        "  max_review_cycles: 5",
        "  heartbeat_interval: 60    # seconds",
        "  lease_duration: 300       # seconds",
        f"  integration_branch: {json.dumps(options.integration_branch or Config().integration_branch)}",
        f"  integration_command: {json.dumps(baseline.command, ensure_ascii=False)}",
    ]
    setup = baseline.setup
    settings: tuple[tuple[str, object, str], ...] = (
        ("permissions", options.permissions, ""),
        ("confinement", options.confinement, ""),
        ("sandbox_setup", None if setup is None else setup.text, ""),
        ("sandbox_setup_files", None if setup is None else list(setup.source_files), ""),
        ("checkout", None if options.checkout == FULL_CHECKOUT else options.checkout, ""),
        ("sandbox_copy", list(options.copied_files) or None, ""),
        ("shared", list(options.shared) or None, ""),
        ("sandbox_keep", list(baseline.caches) or None, "    # caches that merges keep between tests"),
        ("gate_environment", baseline.gate_environment, "    # the tests are red with CI=true"),
        ("environment", baseline.environment, "    # first on PATH"),
    )
    lines += [
        f"  {name}: {json.dumps(value, ensure_ascii=False)}{note}"
        for name, value, note in settings
        if value is not None
    ]
    if baseline.proof.outcome:
        lines.append("  proof:    # whether the tests test the worktree they run in; again: liza doctor --tests")
        fields = msgspec.structs.asdict(baseline.proof)
        lines += [f"    {name}: {json.dumps(text, ensure_ascii=False)}" for name, text in fields.items() if text]
    if generated:
        lines.append("  generated:    # files that merges make again after a conflict only there")
        lines += [f"    {json.dumps(name)}: {json.dumps(command)}" for name, command in generated.items()]
    if options.program is not None:
        lines += ["  programs:", f"    default: {json.dumps(options.program)}"]
    if options.budget is not None:
        lines += ["  budget:", f"    money_per_sprint: {options.budget}"]
    return "\n".join(lines) + "\n"

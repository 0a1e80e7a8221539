"""What each setting means, and its unit: for `liza config get`, and for the reference. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple


class Meaning(NamedTuple):
    """The unit of a number, empty if the text names what is counted, and the meaning in one line."""

    unit: str
    text: str


SECONDS: Final = "s"
MEANINGS: Final = {
    "max_coder_iterations": Meaning("", "tries before a task is blocked"),
    "max_review_cycles": Meaning("", "rejections before it is blocked"),
    "planning_rounds": Meaning(
        "", "how often planners add tasks at the end of the sprint before a person is asked; 0: no limit"
    ),
    "heartbeat_interval": Meaning(SECONDS, "time between two renewals of a lease"),
    "lease_duration": Meaning(SECONDS, "time after which work without a renewed lease may be given to another agent"),
    "hung_after": Meaning(SECONDS, "time without activity after which a session is ended"),
    "poll_interval": Meaning(SECONDS, "longest time between two looks at the board"),
    "archive_after": Meaning(
        "", "closed tasks on the board; the oldest of more are archived; 0: only `liza archive`"
    ),
    "ready_timeout": Meaning(SECONDS, "time in which a session reads its brief; null: as the program's row says"),
    "answer_timeout": Meaning(SECONDS, "time without an answer of the model after which a session is ended"),
    "idle_after": Meaning(SECONDS, "time at an idle prompt after which an agent is reminded of its closing command"),
    "grace": Meaning(SECONDS, "time that a session has to end after its closing command, or when stopped"),
    "restart_after_handoff": Meaning(SECONDS, "pause before the session that continues after a handoff"),
    "restart_after_crash": Meaning(SECONDS, "first pause after a crash or a failed merge; it grows"),
    "context_handoff": Meaning("", "used part of the context window, 0 to 1, at which an agent hands off; 1: never"),
    "session_max": Meaning(SECONDS, "age above which an idle session is ended; null: never"),
    "integration_branch": Meaning("", "branch into which tasks are merged"),
    "integration_command": Meaning("", "the tests, which a merge must pass"),
    "integration_timeout": Meaning(SECONDS, "longest run of the tests, a gate or the set-up"),
    "sandbox_setup": Meaning("", "command that prepares a worktree"),
    "sandbox_setup_files": Meaning("", "files whose change makes the set-up run again"),
    "sandbox_copy": Meaning("", "ignored files of your checkout that each worktree gets"),
    "sandbox_keep": Meaning("", "ignored names in worktrees that stay between two tests, such as caches"),
    "merge_clean": Meaning("", "when ignored files are removed before a test: after_red, always or never"),
    "environment": Meaning("", "virtual environment with the dependencies of the tests"),
    "gate_environment": Meaning("", "variables of the gates, the proof and the sessions, each as NAME=VALUE"),
    "env_allow": Meaning("", "variables that sessions inherit, such as SSH_AUTH_SOCK; * matches any ending"),
    "tests_write": Meaning("", "patterns of tracked files that the tests may change"),
    "generated": Meaning("", "commands that make files again after conflicts, by the path or pattern of the file"),
    "installed_changes": Meaning("", "patterns of installed files that may differ from their packages"),
    "checkout": Meaning("", "full, or sparse: candidates are tested in a checkout as sparse as yours"),
    "proof.outcome": Meaning("", "result of the last proof of the tests; empty before the first"),
    "proof.command": Meaning("", "the test command that was proved"),
    "proof.setup": Meaning("", "the set-up that was used"),
    "proof.why": Meaning("", "why the tests are not proved"),
    "proof.writes": Meaning("", "tracked files that the commands write on your own commit, too"),
    "proof.green_parts": Meaning("", "parts of the command that stay green when all sources fail"),
    "proof.reads_last_commit": Meaning("", "the command tests only what the last commit changes"),
    "proof.setup_builds": Meaning("", "the set-up reads sources, so it runs for each candidate"),
    "proof.meaning": Meaning("", "digest of the files that define what the command does"),
    "proof.environment": Meaning("", "digest of the packages in `environment`"),
    "proof.changed": Meaning("", "files of that digest that have changed since"),
    "proof.gates": Meaning("", "the commands of `gates` at that time"),
    "proof.boxed": Meaning("", "the proof ran in a box"),
    "proof_runs": Meaning("", "most runs of the tests with failing sources in a proof"),
    "unproved_commands": Meaning("", "parts of the test command that you accept although they cannot fail"),
    "programs": Meaning("", "last choice for an agent or a role"),
    "permissions": Meaning("", "prompts, or bypass: never ask"),
    "confinement": Meaning("", "whether what agents write runs in a box: auto, required or off"),
    "network": Meaning("", "on, or off: the set-up and the tests have only a loopback interface, if in a box"),
    "shared": Meaning("", "directories that a box can write, and files and sockets that it can open, besides its own"),
    "budget.money_per_task": Meaning("US$", "most money a task; null: no limit"),
    "budget.money_per_sprint": Meaning("US$", "most money in all; null: no limit"),
    "budget.tokens_per_task": Meaning("tokens", "most tokens for a task; null: no limit"),
    "budget.tokens_per_sprint": Meaning("tokens", "most tokens for all tasks; null: no limit"),
    "budget.seconds_per_task": Meaning(SECONDS, "longest time of the sessions of a task; null: no limit"),
    "budget.seconds_per_sprint": Meaning(SECONDS, "longest time of all sessions; null: no limit"),
    "delivery.readiness_timeout": Meaning(SECONDS, "longest wait until a message can be typed"),
    "delivery.require_acknowledgment": Meaning("", "false: the text on the terminal counts as acknowledgment"),
    "delivery.acknowledgment_timeout": Meaning(SECONDS, "longest wait for an acknowledgment"),
    "delivery.retry_backoffs": Meaning(SECONDS, "pause after each try"),
    "delivery.file_fallback_after_attempts": Meaning("", "tries after which a message is written into the brief"),
    "delivery.send_notification_on_failure": Meaning("", "whether you are told of a message that is not read"),
    "delivery.readiness_patterns": Meaning(
        "", "regular expressions of a last line at which a program waits, besides those of its row"
    ),
    "delivery.acknowledgment_patterns": Meaning("", "regular expressions that acknowledge a message"),
    "loop.same_calls": Meaning("", "repetitions of one call with one result, without a new call between; 0: off"),
    "loop.pause": Meaning(SECONDS, "longest pause between two such calls; after a longer one it is polling"),
    "loop.unchanged_calls": Meaning("", "calls without a change in the worktree, with unchanged_seconds; 0: off"),
    "loop.unchanged_seconds": Meaning(SECONDS, "time without a change in the worktree, with unchanged_calls; 0: off"),
    "breaker.window": Meaning(SECONDS, "age of the events that the circuit breaker counts"),
    "breaker.similarity": Meaning("%", "how similar two texts are that count as the same error"),
    "breaker.repeated_error": Meaning("", "similar failures and reasons for a block; 0: off"),
    "breaker.review_loop": Meaning("", "rejections and failed merges of one task; 0: off"),
    "breaker.trade_offs": Meaning("", "reports of trade-offs, workarounds and debt; 0: off"),
    "breaker.spec_ambiguity": Meaning("", "reports and blocks about one document; 0: off"),
    "breaker.integration_failures": Meaning("%", "failed part of the last merges, without conflicts; 0: off"),
    "breaker.integration_merges": Meaning("", "number of these merges"),
    "breaker.sessions_without_merge": Meaning("", "sessions since the last merge; 0: off"),
    "breaker.cost_without_merge": Meaning("US$", "money spent since the last merge; 0: off"),
    "breaker.tests_weakened": Meaning("", "reports of weakened tests; 0: off"),
    "breaker.severity": Meaning("", "warn, checkpoint or halt, by the name of a pattern"),
    "guards.on_error": Meaning("", "deny or allow: a tool that cannot be judged"),
    "queue.batch": Meaning("", "most tasks merged together"),
    "queue.parallel": Meaning("", "most gates that run at the same time"),
    "queue.retries": Meaning("", "further tests of a red candidate before its task is blamed; 0: none"),
    "gates": Meaning("", "further checks of a candidate: name, command, paths, branches, timeout, network"),
    "slots.max": Meaning("", "most worktrees that tasks have at the same time; null: no limit"),
    "slots.max_bytes": Meaning("bytes", "disk space above which unused worktrees are removed; null: no limit"),
    "routing": Meaning("", "a task goes to the first idle coder, or to the one whose record fits it best"),
    "overlap": Meaning("", "warn, or hold: a task waits while an agent works on a task with the same files"),
    "work_hours": Meaning("", "local hours in which sessions start, such as mon-fri 08:00-20:00; null: always"),
    "brief": Meaning("", "file, or prompt: no instructions file gets the brief"),
    "pull_request_interval": Meaning(SECONDS, "time between two looks at the pull request; 0: only `liza sync --pr`"),
    "push": Meaning("", "auto: back up branches on origin"),
    "notify.targets": Meaning("", "desktop, env:NAME or file:PATH"),
    "notify.exec": Meaning("", "shell command that is run for each notice"),
    "notify.quiet": Meaning("", "local hours without notices, such as 22:00-07:00"),
    "notify.link": Meaning("", "address of the page: notices end with that of their task"),
}  # fmt: skip
"""By dotted name. The limits of the loops end a session at twice their value, after a warning."""

USUAL: Final = (
    "integration_command",
    "sandbox_setup",
    "programs",
    "permissions",
    "max_coder_iterations",
    "max_review_cycles",
    "budget.money_per_task",
    "budget.money_per_sprint",
    "queue.batch",
    "push",
    "notify.targets",
)
"""Settings that a person is likely to look for: shown also with their defaults."""

WRITTEN_BY_LIZA: Final = "proof."
"""Start of the names of settings that hold a result, which no person sets."""

"""The scripted coder: reads its brief, writes the files of the task, runs the tests, commits, ends the session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from liza.demo.agents.agent_commands import AgentBrief, print_progress, read_brief, run_command, try_command
from liza.demo.agents.coder_script import ANSWER, CODER_STEPS, AskPerson, Crash, HandOver, PriorOutcome, Step


def main() -> None:
    """Run one session."""
    brief = read_brief()
    task = brief.require(r"^TASK (\S+) \(try \d+ of \d+\)")
    steps = CODER_STEPS.get(task)
    if steps is None:
        run_command([*brief.liza, "block", f"there is no script for {task}", "--ask", "Who can do this?"])
        return
    situation = read_prior_outcome(brief)
    print_progress(f"{task}: {situation}")
    # A session may have been stopped between two steps, so an outcome without a step is handled like the first try.
    step = steps.get(situation, steps["first"])
    branch = brief.find(r"[Mm]erge (\S+) into this branch")
    if branch is not None:
        _merge(branch)
    _write(step, brief)
    _end_session(brief, task, step)


def read_prior_outcome(brief: AgentBrief) -> PriorOutcome:
    """Return the prior outcome from the brief. If several apply, the most urgent one is returned."""
    if brief.find(r"^(REJECTED by )"):
        return "rejected"
    if brief.find(r"^(MERGE FAILED: )"):
        return "merge failed"
    if brief.find(r"^(HANDED OVER: )"):
        return "handed over"
    if brief.find(r"^(ANSWERED: )"):
        return "answered"
    return "resumed" if brief.require(r"^TASK \S+ \(try (\d+) of") != "1" else "first"


def _merge(branch: str) -> None:
    """Merge a branch. Conflicting files are overwritten by ``_write``, and the commit concludes the merge."""
    subprocess.run(["git", "merge", "--no-edit", branch], capture_output=True, check=False)
    conflicts = run_command(["git", "diff", "--name-only", "--diff-filter=U"]).split()
    print_progress(f"merged {branch}; conflicts: {', '.join(conflicts) or 'none'}")


def _write(step: Step, brief: AgentBrief) -> None:
    answer = brief.find(r"^ANSWERED: .* → (.*)$") or ""
    for name, text in step.files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(ANSWER, answer), encoding="utf-8")
        print_progress(f"wrote {name}")


def _end_session(brief: AgentBrief, task: str, step: Step) -> None:
    match step.end:
        case Crash(words):
            print(words, file=sys.stderr)
            sys.exit(1)
        case AskPerson(why, ask):
            run_command([*brief.liza, "block", why, "--ask", ask])
        case HandOver(done, following):
            _commit(task, done)
            run_command([*brief.liza, "handoff", done, "--next", following])
            sys.exit(42)
        case None:
            _submit(brief, task)


def _submit(brief: AgentBrief, task: str) -> None:
    failure = try_command(brief.require(r"^TESTS\s+(.+?)(?:  \(set-up has been run\))?$"))
    if failure is not None:
        run_command([*brief.liza, "block", f"the tests fail: {failure}", "--ask", "What did I break?"])
        return
    _commit(task, "tests pass")
    run_command([*brief.liza, "submit"])


def _commit(task: str, words: str) -> None:
    """Commit all changes, if there are any: an earlier session may have committed them."""
    run_command(["git", "add", "-A"])
    if try_command("git diff --cached --quiet && ! git rev-parse -q --verify MERGE_HEAD") is not None:
        run_command(["git", "commit", "-q", "-m", f"{task}: {words}"])


if __name__ == "__main__":
    main()

"""The rules that change the board: which the machine plays by themselves, and why it does not play the others."""

from __future__ import annotations

import ast
from pathlib import Path

import liza
from tests.unit.sources import pure_modules

ROOT = Path(liza.__file__).parent
RETURNED = ("State", "tuple[State, str]")
NOT_PLAYED = {
    "archiving.with_totals": "repairs numbers that are counted in the files of the archive",
    "archiving.take_back": "a part of an undo of an archived task, which the model does not keep: test_undo_rules",
    "merge_queue.clear_blame": "undoes a failed merge of another cause: test_blame",
    "board_reports.add_failed_session": "adds what no other rule reads: test_board_reports",
    "board_reports.convert_discovery": "a part of backlog.add, which is played with discoveries",
    "archiving.with_outcomes": "a part of backlog.add, edit and supersede",
    "claims.allocate_run": "a part of each claim",
    "claims.ensure_agent": "a part of each claim",
    "planning.move_agent": "gives work back, on a crew with hosts: test_work_elsewhere",
    "coding.note_failed_check": "changes only the note for the next session: test_claiming",
    "derived.restart_planning_rounds": "sets a number back to 0: test_planning_triggers",
    "derived.update_derived_fields": "follows each change, as in a transaction",
    "merge_rules.clear_red_branch": "removes records of failed merges: test_blame",
    "merge_rules.retry_red_branch": "changes the time of the next merge: test_blame",
    "edits.apply_edit": "takes only what verbs could change: test_session_edits",
    "request_feedback.remember": "changes only what is remembered of a pull request: test_request_feedback",
    "request_feedback.track_request": "changes only what is remembered of a pull request: test_request_feedback",
    "planning.end_at_checkpoint": "as planning.end_planning, and the goal stays: test_planning_triggers",
    "planning.leave_drafts": "changes only what wakes a planner: test_planning_triggers",
    "planning.without_others": "a part of the board, for decisions about one task: test_submission_rules",
    "planning.close_sprint": "a part of planning.end_planning",
    "bound_claims.claim": "programs that Liza did not start, which the model does not have: test_bound_claim_rules",
    "bound_claims.hand_off": "programs that Liza did not start, which the model does not have: test_bound_claim_rules",
    "bound_claims.leave": "programs that Liza did not start, which the model does not have: test_bound_claim_rules",
    "bound_claims.submit": "programs that Liza did not start, which the model does not have: test_bound_claim_rules",
    "submissions.add_submitted": "work that Liza did not start, which the model does not have: test_submission_rules",
    "submissions.resubmit": "work that Liza did not start, which the model does not have: test_submission_rules",
    "submissions.record_contents": "a part of bound_claims.submit",
    "strangers.record_opinion": "a review that gives no verdict, of work that the model does not have: test_strangers",
    "strangers.end_without_opinion": "as strangers.record_opinion",
    "strangers.clear_foreign": "a part of merge_rules.record_merge, for work that the model does not have",
    "targets.record_contained": "a part of the rules of epics and of backlog.add",
    "targets.with_epic": "a part of the rules of epics",
}
"""Rules that change a board and are not played by themselves → the reason."""


def find_rules() -> set[str]:
    """Return the public functions of the rules that return a board, as module and name."""
    rules: set[str] = set()
    for path in pure_modules(ROOT.parent):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.returns is not None and not node.name.startswith("_"):
                rules |= {f"{path.stem}.{node.name}"} if ast.unparse(node.returns) in RETURNED else set()
    return rules


def find_played_rules() -> set[str]:
    """Return the functions that the machine names, as module and name."""
    tree = ast.parse((Path(__file__).parent / "crew_machine.py").read_text())
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return {f"{node.value.id}.{node.attr}" for node in names if isinstance(node.value, ast.Name)}

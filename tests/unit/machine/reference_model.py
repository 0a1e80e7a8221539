"""What each verb does to the board, written a second time: from specs/architecture, with dicts, and without the rules.

A method is a verb. It raises No if the verb is refused, and changes the model otherwise; a verb that was said before
changes nothing. Tasks are dicts whose values are immutable, so a copy of the dicts is a copy of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

Entry = dict[str, Any]
FINAL = ("MERGED", "SUPERSEDED", "ABANDONED")
CLAIMABLE = ("UNCLAIMED", "REJECTED", "INTEGRATION_FAILED", "CLAIMED")
TRIES = ("ended",)
"""Ends of sessions that are a try. A crash is counted by itself; all other ends count against nothing."""
PROOFS = ("ended", "handoff", "submit", "block", "unblock", "context full", "too old")
"""Events after which crashes before them are no longer crashes in a row."""
UNREVIEWED = {"reviewer": None, "review_run": None, "review_lease": None}
NO_CANDIDATE = {"candidate": None, "waits": False}
NOBODY = {"run": None, "lease": None, "reserved": None, **UNREVIEWED, **NO_CANDIDATE}
ABSENT = {"status": None, "deps": (), "successors": (), "epic": None, "target": None, "landed": False}


class No(Exception):
    """The verb is refused."""


def require(condition: object, why: str = "") -> None:
    if not condition:
        raise No(why)


def agent_of(run: str) -> str:
    return run.rpartition(".")[0]


class ReferenceModel:
    """The board. ``offline``: agents without a supervisor. ``living``: runs whose session is not over."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.tasks: dict[str, Entry] = {}
        self.archived: dict[str, str] = {}
        self.runs: dict[str, int] = {}
        self.plan: Entry = {"run": None, "trigger": None, "lease": None}
        self.goal = "IN_PROGRESS"
        self.epics: dict[str, Entry] = {}
        self.reports: dict[str, str] = {}
        self.reporters: dict[str, str] = {}
        self.urgent: frozenset[str] = frozenset()
        self.trips: tuple[str, ...] = ()
        self.settings: dict[str, Any] = {"max_review_cycles": 5, "slots.max": None, "lease_duration": 300}
        self.offline: frozenset[str] = frozenset()
        self.living: frozenset[str] = frozenset()
        self.extensions: dict[str, int] = {}

    def copy(self) -> ReferenceModel:
        """Return a copy that no verb on this model changes."""
        other = ReferenceModel(self.now)
        for name, value in vars(self).items():
            nested = isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values())
            copied = {key: dict(entry) for key, entry in value.items()} if nested else value
            setattr(other, name, dict(copied) if isinstance(copied, dict) else copied)
        return other

    # What verbs ask.

    def task(self, name: str) -> Entry:
        require(name in self.tasks, f"no task {name}")
        return self.tasks[name]

    def owned(self, name: str, run: str) -> Entry:
        """The task, if ``run`` is the confirmed claim of its coder."""
        task = self.task(name)
        require(task["status"] == "CLAIMED" and task["run"] == run and not task["reserved"], "not its owner")
        return task

    def lease(self) -> datetime:
        return self.now + timedelta(seconds=self.settings["lease_duration"])

    def new_run(self, agent: str) -> str:
        self.runs[agent] = self.runs.get(agent, 0) + 1
        return f"{agent}.{self.runs[agent]}"

    def work_of(self, agent: str) -> list[tuple[str, str | None]]:
        """Everything that an agent holds, as (kind, task)."""
        held: list[tuple[str, str | None]] = []
        for name, task in self.tasks.items():
            held += [("claim", name)] if task["status"] == "CLAIMED" and task["coder"] == agent else []
            held += [("review", name)] if task["reviewer"] == agent else []
            held += [("reservation", name)] if task["reserved"] and agent_of(task["reserved"][0]) == agent else []
        return held + ([("planning", None)] if self.plan["run"] and agent_of(self.plan["run"]) == agent else [])

    def is_abandoned(self, run: str, lease: datetime | None) -> bool:
        expired = lease is not None and lease <= self.now
        return expired and agent_of(run) in self.offline and run not in self.living

    def is_on_integration(self, task: Entry) -> bool:
        return bool(task["status"] == "MERGED" and not task["target"] and (not task["epic"] or task["landed"]))

    def replacements(self, name: str, seen: tuple[str, ...] = ()) -> set[str]:
        """The task, and if it is superseded what replaces it, at any distance."""
        others = () if name in seen else self.tasks.get(name, ABSENT)["successors"]
        return {name}.union(*(self.replacements(other, (*seen, name)) for other in others))

    def leaves(self, name: str) -> set[str]:
        """The task, or what replaces it if it is superseded."""
        names = self.replacements(name)
        return {other for other in names if self.tasks.get(other, ABSENT)["status"] != "SUPERSEDED"}

    def is_met(self, asking: Entry, name: str) -> bool:
        """A dependency is met when it, or each successor of it, is MERGED into the branch of ``asking``."""
        return all(self.has_work(asking, leaf) for leaf in self.leaves(name))

    def has_work(self, asking: Entry, name: str) -> bool:
        task = self.tasks.get(name, ABSENT)
        if task["status"] == "MERGED" and (task["epic"], task["target"]) == (asking["epic"], asking["target"]):
            return True
        if not self.is_on_integration(task) and self.archived.get(name) != "MERGED":
            return False
        return name in self.epics[asking["epic"]]["contains"] if asking["epic"] else not asking["target"]

    def open_in(self, epic: str) -> list[str]:
        return [name for name, task in self.tasks.items() if task["epic"] == epic and task["status"] not in FINAL]

    def waits_for(self, name: str) -> set[str]:
        """What must be closed before the task can be merged. An epic lands with all of its tasks."""
        task = self.tasks.get(name, ABSENT)
        if task["status"] == "MERGED":
            return set()
        others = {*task["deps"], *task["successors"]}
        if task["status"] in FINAL or task["status"] is None:
            return others
        leaves = set().union(*(self.leaves(other) for other in task["deps"])) if task["deps"] else set()
        epics = {self.tasks.get(leaf, ABSENT)["epic"] for leaf in leaves} - {None, task["epic"]}
        return others.union(*(self.open_in(epic) for epic in epics))

    def is_in_cycle(self, start: str) -> bool:
        reached, frontier = set(), self.waits_for(start)
        while frontier:
            reached |= frontier
            frontier = set().union(*(self.waits_for(name) for name in frontier)) - reached
        return start in reached

    def is_being_merged(self, task: Entry) -> bool:
        """A merger is at work. A tested candidate that is kept for a retry waits."""
        is_kept = task["candidate"] == "tested" and task["retried"]
        return bool(task["candidate"] and not task["waits"] and not is_kept)

    def claim_obstacle(self, name: str, agent: str, *, is_reserved: bool = False) -> str:
        """Why the agent may not claim the task, which it has reserved or not; empty if it may."""
        task = self.tasks[name]
        returned = task["status"] in ("REJECTED", "INTEGRATION_FAILED")
        age = self.now - task["last"]
        others = [other["slot"] for key, other in self.tasks.items() if key != name and other["slot"]]
        others += [other["reserved"][2] for key, other in self.tasks.items() if key != name and other["reserved"]]
        if not agent.startswith("coder-") or task["status"] not in CLAIMABLE or task["reserved"]:
            return "not claimable"
        if task["status"] == "CLAIMED":
            is_dead = task["coder"] in self.offline and task["run"] is not None and task["run"] not in self.living
            expired = task["lease"] is None or task["lease"] <= self.now
            if task["coder"] == agent or not expired or not is_dead:
                return "its claim is alive"
        if not all(self.is_met(task, other) for other in task["deps"]) or agent in task["failed"]:
            return "it waits, or the agent failed it"
        is_kept = returned and task["coder"] not in (None, agent, *task["failed"], *self.offline)
        is_kept = is_kept and not is_reserved and not self.work_of(task["coder"])
        if is_kept and age < timedelta(seconds=self.settings["lease_duration"]):
            return "its coder is to fix it first"
        limit = self.settings["slots.max"]
        return "no slot" if limit and not task["slot"] and len(set(others)) >= limit else ""

    def write(self, name: str, event: str, by: str | None = None, /, **changes: Any) -> None:
        """Change a task: an event in its history, and ``changes``."""
        task = self.tasks[name]
        task.update(changes, last=self.now, done=task["done"] | {(event, by)})
        task["row"] = 0 if event in PROOFS else task["row"] + (event == "crash")
        if task["status"] in FINAL:
            task["slot"] = None
        if task["status"] != "APPROVED":
            task.update(retried=False, deaths=0)

    # Planner and person.

    def add(self, wanted: Iterable[Entry]) -> None:
        wanted = list(wanted)
        for fields in wanted:
            name, discovery = fields["id"], fields.get("discovery")
            require(name not in self.tasks and name not in self.archived, "the id is taken")
            require(1 <= fields.get("priority", 3) <= 9 and not (fields.get("epic") and fields.get("target")))
            status = "DRAFT" if fields.get("draft") or not fields["complete"] else "UNCLAIMED"
            self.tasks[name] = {
                **dict.fromkeys(("coder", "slot", "commit", "approver", "hold"), None), **NOBODY,
                "status": status, "requested": bool(fields.get("draft")), "complete": fields["complete"],
                "deps": tuple(fields.get("deps", ())), "epic": fields.get("epic"), "target": fields.get("target"),
                "review": fields.get("review", "agent"), "failed": (), "authors": frozenset(), "successors": (),
                "idle": 0, "crashes": 0, "row": 0, "rounds": 0, "unmerged": 0, "silent_reviews": 0, "deaths": 0,
                "retried": False, "landed": False, "undo": "", "last": self.now, "done": frozenset(),
            }  # fmt: skip
            if discovery:
                require(self.reports.get(discovery) == "open", "no such discovery")
                self.reports[discovery], self.urgent = "converted", self.urgent - {discovery}
        self.goal = "IN_PROGRESS"
        for epic in {fields["epic"] for fields in wanted if fields.get("epic")}:
            self.begin_epic(epic, [fields["id"] for fields in wanted])
        for fields in wanted:
            self.check_dependencies(fields["id"])

    def begin_epic(self, epic: str, new: list[str]) -> None:
        """The branch of a new epic starts at integration, and has what is there."""
        entry = self.epics.setdefault(epic, {"contains": frozenset(), "candidate": None, "mends": 0})
        if not {*self.open_in(epic), *self.to_land(epic)} - {*new}:
            entry["contains"] |= self.needs(epic)

    def check_dependencies(self, name: str) -> None:
        task = self.tasks[name]
        for other in task["deps"]:
            require(other in self.tasks or other in self.archived, "unknown dependency")
        require(self.can_be_met(task), "another branch")
        require(not self.is_in_cycle(name), "a cycle")

    def can_be_met(self, task: Entry) -> bool:
        """Tasks with different targets cannot depend on each other."""
        leaves = [self.tasks.get(leaf, ABSENT) for other in task["deps"] for leaf in self.leaves(other)]
        return all(other["target"] == task["target"] for other in leaves)

    def edit(self, name: str, by: str, changes: Entry) -> None:
        task = self.task(name)
        require(task["status"] in ("DRAFT", "UNCLAIMED"), "claimed before")
        is_review_taken = task["review"] == "human" and changes.get("review") == "agent"
        require(not is_review_taken or by.startswith("human:"), "a person's review")
        draft = changes.pop("draft", False)
        before = {key: task[key] for key in ("deps", "review", "complete")}
        task.update({key: value for key, value in changes.items() if key in before})
        is_changed = before != {key: task[key] for key in before} or changes.get("text")
        require(task["complete"] or task["status"] == "DRAFT" or not is_changed, "it would be incomplete")
        is_ready = task["status"] == "DRAFT" and task["complete"] and not draft
        if is_changed or is_ready:
            status = "UNCLAIMED" if is_ready else task["status"]
            self.write(name, "edit", requested=draft, status=status)
            self.check_dependencies(name)

    def release_drafts(self) -> None:
        """Incomplete drafts that are complete now. A draft that was requested stays one."""
        for name, task in self.tasks.items():
            if task["status"] == "DRAFT" and not task["requested"] and task["complete"]:
                self.write(name, "ready", status="UNCLAIMED")

    def unblock(self, name: str, answers: Iterable[str], *, by_person: bool) -> None:
        task, answers = self.task(name), list(answers)
        is_review = task["silent_reviews"] >= 2
        require(task["status"] == "BLOCKED" and (by_person or is_review or len(task["failed"]) < 2))
        require(answers and all(map(str.strip, answers)))
        if is_review:
            self.write(name, "unblock review", status="READY_FOR_REVIEW", silent_reviews=0)
            return
        failed = () if by_person else task["failed"]
        zero = {"failed": failed, "crashes": 0, "rounds": 0, "unmerged": 0, "idle": 0, "silent_reviews": 0}
        self.write(name, "unblock", status="UNCLAIMED", run=None, lease=None, **zero)

    def restart_counts(self, name: str) -> None:
        task = self.task(name)
        if task["status"] in ("UNCLAIMED", "REJECTED", "INTEGRATION_FAILED", "BLOCKED"):
            task.update(failed=(), rounds=0, idle=0)

    def supersede(self, name: str, new: Iterable[Entry], existing: Iterable[str], because: str) -> None:
        is_undone = self.task(name)["undo"] == "done" and self.task(name)["status"] == "ABANDONED"
        task = self.task(name) if is_undone else self.stoppable(name)
        new, existing = [dict(fields) for fields in new], list(existing)
        successors = (*existing, *(fields["id"] for fields in new))
        require(because.strip() and successors and name not in successors)
        require(all(other in self.tasks or other in self.archived for other in existing), "unknown successor")
        branch = {"epic": task["epic"], "target": task["target"]}
        kept = {"review": "human"} if task["review"] == "human" else {}
        for fields in new:
            fields.update(kept, **({} if fields.get("epic") or fields.get("target") else branch))
        self.add(new)
        self.write(name, "supersede", status="SUPERSEDED", successors=successors, **NOBODY)
        open_tasks = [other for other, entry in self.tasks.items() if entry["status"] not in FINAL]
        require(all(self.can_be_met(self.tasks[other]) for other in open_tasks), "another branch")
        require(not any(map(self.is_in_cycle, (name, *open_tasks))), "a cycle")

    def stoppable(self, name: str) -> Entry:
        task = self.task(name)
        require(task["status"] not in FINAL and not self.is_being_merged(task), "final, or being merged")
        return task

    def drop(self, name: str, dependants: str | None) -> None:
        if self.task(name)["status"] == "ABANDONED":
            return
        self.stoppable(name)
        waiting = [other for other, task in self.tasks.items() if name in task["deps"] and task["status"] not in FINAL]
        require(dependants or not waiting, "others depend on it")
        self.write(name, "drop", status="ABANDONED", **NOBODY)
        for other in waiting:
            if dependants == "cascade":
                self.drop(other, dependants)
            else:
                self.tasks[other]["deps"] = tuple(dep for dep in self.tasks[other]["deps"] if dep != name)

    def fence(self, name: str) -> None:
        require(self.task(name)["status"] == "CLAIMED")
        self.tasks[name].update(run=None, lease=self.now)

    def release(self, name: str) -> None:
        """The second half of a release by a person: only what was fenced."""
        task = self.task(name)
        if task["status"] != "UNCLAIMED":
            require(task["status"] == "CLAIMED" and task["run"] is None, "it was not fenced")
            self.write(name, "release", status="UNCLAIMED", coder=None, lease=None)

    # Coder, and the supervisor of a coder.

    def reserve(self, name: str, agent: str, slot: str) -> str:
        task = self.task(name)
        require(not self.claim_obstacle(name, agent) and not self.work_of(agent))
        run = self.new_run(agent)
        task["reserved"] = (run, task["run"], slot)
        task["run"] = run if task["status"] == "CLAIMED" else task["run"]
        return run

    def undo(self, name: str, run: str) -> None:
        task = self.task(name)
        if task["reserved"] and task["reserved"][0] == run:
            task.update(run=task["reserved"][1] if task["run"] == run else task["run"], reserved=None)

    def confirm(self, name: str, run: str) -> None:
        task = self.task(name)
        if ("claim", run) in task["done"]:
            return
        require(task["reserved"] and task["reserved"][0] == run, "no such reservation")
        slot = task["reserved"][2]
        self.undo(name, run)
        agent = agent_of(run)
        require(not self.claim_obstacle(name, agent, is_reserved=True))
        claimed = {"status": "CLAIMED", "coder": agent, "run": run, "slot": slot, "lease": self.lease()}
        self.write(name, "claim", run, authors=task["authors"] | {agent}, **claimed)

    def resume(self, name: str, run: str) -> str:
        self.owned(name, run)
        fresh = self.new_run(agent_of(run))
        self.write(name, "resume", fresh, run=fresh, lease=self.lease())
        return fresh

    def stop(self, name: str, run: str) -> None:
        if ("stop", run) not in self.task(name)["done"]:
            self.owned(name, run)
            self.write(name, "stop", run, lease=self.now)

    def submit(self, name: str, run: str, head: str, finished: bool) -> None:
        task = self.task(name)
        if task["status"] == "READY_FOR_REVIEW" and task["run"] == run:
            if head != task["commit"]:
                require(finished and task["reviewer"] is None, "it is under review")
                self.write(name, "submit again", run, commit=head)
        elif ("submit", run) not in task["done"]:
            self.owned(name, run)
            require(finished and head != task["commit"], "unfinished, or the commit that was sent back")
            sent = {"status": "READY_FOR_REVIEW", "commit": head, "lease": None, "idle": 0, "silent_reviews": 0}
            self.write(name, "submit", run, **sent)

    def block(self, name: str, run: str, questions: Iterable[str]) -> None:
        if ("block", run) not in self.task(name)["done"]:
            questions = list(questions)
            require(1 <= len(questions) <= 3 and all(map(str.strip, questions)))
            self.owned(name, run)
            self.write(name, "block", run, status="BLOCKED", lease=None)

    def block_by_supervisor(self, name: str) -> None:
        task = self.task(name)
        if task["status"] != "BLOCKED":
            require(task["status"] in ("CLAIMED", "REJECTED", "INTEGRATION_FAILED") and not task["reserved"])
            self.write(name, "block", task["run"], status="BLOCKED", lease=None, failed=self.with_failure(task))

    def with_failure(self, task: Entry) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*task["failed"], *filter(None, [task["coder"]]))))

    def handoff(self, name: str, run: str, summary: str) -> None:
        if ("handoff", run) not in self.task(name)["done"]:
            self.owned(name, run)
            require(summary.strip())
            self.write(name, "handoff", run)

    def session_end(self, name: str, run: str, event: str, moved: bool) -> None:
        """The end of a session that still owns its task; for all others there is nothing to record."""
        task = self.tasks.get(name)
        if task is None or (event, run) in task["done"] or task["reserved"]:
            return
        if task["status"] != "CLAIMED" or task["run"] != run:
            return
        self.write(name, event, run)
        task["crashes"] += event == "crash"
        task["idle"] = task["idle"] if event not in TRIES else 0 if moved else task["idle"] + 1
        if (event == "crash" and task["crashes"] >= 5) or (event in TRIES and task["idle"] >= 2):
            self.block_by_supervisor(name)
        elif event == "crash" and (task["row"] >= 2 or self.has_untried(agent_of(run))):
            self.write(name, "release", status="UNCLAIMED", coder=None, run=None, lease=None)

    def has_untried(self, agent: str) -> bool:
        """Whether a coder holds or may take a task whose last session did not crash; nobody is known to be offline."""
        asked = self.copy()
        asked.offline = asked.living = frozenset()
        return self.goal == "IN_PROGRESS" and any(
            task["row"] == 0
            and (
                not asked.claim_obstacle(name, agent)
                or (task["status"] == "CLAIMED" and not task["reserved"] and task["coder"] == agent)
                or (task["status"] in CLAIMABLE and task["reserved"] and agent_of(task["reserved"][0]) == agent)
            )
            for name, task in self.tasks.items()
        )

    def renew(self, run: str) -> None:
        for task in self.tasks.values():
            if task["status"] == "CLAIMED" and task["run"] == run and not task["reserved"]:
                task["lease"] = max(self.lease(), task["lease"])
                return
            if task["review_run"] == run:
                task["review_lease"] = max(self.lease(), task["review_lease"])
                return
        require(self.plan["run"] == run, "it holds nothing")
        self.plan["lease"] = self.lease()

    def extend(self, run: str, seconds: int) -> None:
        require(0 < seconds <= 4 * 3600, "the time")
        self.renew(run)
        held = [task for task in self.tasks.values() if run in (task["run"], task["review_run"])]
        task = next((task for task in held if task["review_run"] == run or task["status"] == "CLAIMED"), None)
        require(task is not None, "it plans")
        assert task is not None
        require(self.extensions.get(run, 0) < 20, "the number")
        self.extensions[run] = self.extensions.get(run, 0) + 1
        field = "review_lease" if task["review_run"] == run else "lease"
        task.update({field: max(task[field], self.now + timedelta(seconds=seconds)), "last": self.now})

    # Reviewer.

    def claim_review(self, name: str, agent: str) -> str:
        task = self.task(name)
        is_free = task["reviewer"] is None or self.is_abandoned(task["review_run"], task["review_lease"])
        require(agent.startswith("code-reviewer-") and task["status"] == "READY_FOR_REVIEW" and is_free)
        require(task["review"] == "agent" and agent not in task["authors"] and task["run"] not in self.living)
        require(not self.work_of(agent), "busy")
        run = self.new_run(agent)
        self.write(name, "claim review", run, reviewer=agent, review_run=run, review_lease=self.lease())
        return run

    def release_review(self, name: str, run: str, *, counted: bool = False) -> None:
        task = self.tasks.get(name)
        if task is None or task["review_run"] != run:
            return
        count = task["silent_reviews"] + counted
        status = "BLOCKED" if counted and count >= 2 else task["status"]
        self.write(name, "release review", run, status=status, silent_reviews=count, **UNREVIEWED)

    def verdict(self, name: str, by: str, commit: str, word: str, reason: str) -> None:
        task = self.task(name)
        if by.startswith("human:"):
            require(task["status"] == "READY_FOR_REVIEW")
        else:
            if (word, by) in task["done"]:
                return
            require(task["review"] == "agent" and agent_of(by) not in task["authors"])
            require(task["status"] == "READY_FOR_REVIEW" and task["review_run"] == by)
        require(commit == task["commit"] and (reason.strip() or word == "approve"))
        actor = by if by.startswith("human:") else agent_of(by)
        if word == "approve":
            self.write(name, word, by, status="APPROVED", approver=actor, **UNREVIEWED)
            return
        rounds = task["rounds"] + 1
        is_last = rounds >= self.settings["max_review_cycles"]
        failed = self.with_failure(task) if is_last else task["failed"]
        status = "BLOCKED" if is_last else "REJECTED"
        if is_last:
            self.reports[f"a-{1 + sum(key.startswith('a-') for key in self.reports)}"] = "open"
        self.write(name, word, by, status=status, rounds=rounds, failed=failed, **UNREVIEWED)

    # Merger.

    def begin(self, names: Iterable[str]) -> None:
        for name in names:
            require(self.task(name)["status"] == "APPROVED")
            self.tasks[name].update(candidate="begun", waits=False)

    def tested(self, names: Iterable[str], dropped: Iterable[str] = ()) -> None:
        for name in names:
            require(self.task(name)["status"] == "APPROVED" and self.tasks[name]["candidate"], "no candidate")
            self.tasks[name]["candidate"] = "tested"
        for name in dropped:
            self.drop_candidate(name)

    def wait_for_files(self, names: Iterable[str]) -> None:
        for name in names:
            require(self.task(name)["status"] == "APPROVED" and self.tasks[name]["candidate"])
            self.tasks[name].update(waits=True, retried=False, deaths=0)

    def drop_candidate(self, name: str) -> None:
        self.task(name).update(NO_CANDIDATE)

    def merge(self, names: Iterable[str]) -> None:
        for name in names:
            if self.task(name)["status"] != "MERGED":
                require(self.tasks[name]["status"] == "APPROVED")
                self.write(name, "merge", status="MERGED", hold=None, **NO_CANDIDATE)

    def begin_undo(self, name: str) -> None:
        require(self.task(name)["status"] == "MERGED", "not merged")
        self.tasks[name]["undo"] = "begun"

    def drop_undo(self, name: str) -> None:
        if name in self.tasks and self.tasks[name]["undo"] == "begun":
            self.tasks[name]["undo"] = ""

    def record_undone(self, name: str) -> None:
        """Its work is not on its branch any more: what depends on it waits until something takes its place."""
        if self.task(name)["undo"] == "begun":
            self.write(name, "undo", status="ABANDONED", undo="done")

    def merge_failed(self, name: str, kind: str) -> None:
        """A conflict and red tests go back to the coder, and so does what only the coder can resolve, up to a limit.

        After any other failure the merge is retried. A candidate that passed its tests is kept for that.
        """
        task = self.task(name)
        require(task["status"] == "APPROVED")
        deaths = task["deaths"] + 1 if kind == "merger died" else 0
        if kind in ("conflict", "unrelated history", "commit gone") or deaths >= 3:
            failed: Entry = {"unmerged": task["unmerged"] + 1, "approver": None, **NO_CANDIDATE}
            self.write(name, "merge failed", status="INTEGRATION_FAILED", **failed)
            if task["unmerged"] >= self.settings["max_review_cycles"]:
                self.block_by_supervisor(name)
            return
        if task["candidate"] != "tested" or kind == "batch failed":
            task.update(NO_CANDIDATE)
        task.update(retried=True, deaths=deaths)

    def hold(self, name: str, reason: str) -> None:
        self.stoppable(name)
        require(reason.strip())
        self.tasks[name]["hold"] = reason

    def unhold(self, name: str) -> None:
        self.task(name)["hold"] = None

    def retry(self, name: str) -> None:
        require(self.task(name)["status"] == "APPROVED" and self.tasks[name]["hold"] is None)

    def move(self, name: str, position: int) -> None:
        require(self.task(name)["status"] == "APPROVED")
        require(1 <= position <= sum(task["status"] == "APPROVED" for task in self.tasks.values()))

    # Epics.

    def needs(self, epic: str) -> frozenset[str]:
        """Work of others that open tasks of the epic depend on, and that is on integration."""
        leaves: set[str] = set()
        for name in self.open_in(epic):
            leaves = leaves.union(*(self.leaves(other) for other in self.tasks[name]["deps"]))
        others = {name for name in leaves if self.tasks.get(name, ABSENT)["epic"] != epic}
        on_integration = {name for name in others if self.is_on_integration(self.tasks.get(name, ABSENT))}
        return frozenset(on_integration | {name for name in others if self.archived.get(name) == "MERGED"})

    def to_land(self, epic: str) -> list[str]:
        return [
            name
            for name, task in self.tasks.items()
            if task["epic"] == epic and task["status"] == "MERGED" and not task["landed"]
        ]

    def due(self, epic: str) -> str | None:
        """The merge of an epic with integration that is due."""
        if self.open_in(epic):
            return "update" if self.needs(epic) - self.epics[epic]["contains"] else None
        return "land" if self.to_land(epic) else None

    def epic_begin(self, epic: str, step: str) -> None:
        require(self.due(epic) == step)
        self.epics[epic]["candidate"] = step

    def epic_tested(self, epic: str) -> None:
        require(self.epics[epic]["candidate"])

    def epic_drop(self, epic: str) -> None:
        self.epics[epic]["candidate"] = None

    def epic_update(self, epic: str) -> None:
        entry = self.epics[epic]
        entry.update(candidate=None, contains=entry["contains"] | self.needs(epic))

    def epic_land(self, epic: str, names: Iterable[str]) -> None:
        for name in names:
            self.write(name, "land", landed=True)
        contains = self.epics[epic]["contains"] if self.open_in(epic) else frozenset()
        self.epics[epic].update(candidate=None, mends=0, contains=contains)

    def epic_mend(self, epic: str) -> None:
        self.epics[epic].update(candidate=None, mends=self.epics[epic]["mends"] + 1)

    # Planning, reports, the circuit breaker, settings, the archive.

    def is_done(self) -> bool:
        return all(task["status"] in FINAL for task in self.tasks.values()) and not any(map(self.to_land, self.epics))

    def reasons_to_plan(self) -> set[str]:
        """The triggers that may wake a planner now. The same reason wakes it at most twice, so not all of them do."""
        if self.goal != "IN_PROGRESS":
            return set()
        if not self.tasks and not self.archived:
            return {"INITIAL_PLANNING"}
        blocked = [len(task["failed"]) for task in self.tasks.values() if task["status"] == "BLOCKED"]
        reasons = {"HYPOTHESIS_EXHAUSTION" if failures >= 2 else "BLOCKED_TASKS" for failures in blocked}
        reasons |= {"IMMEDIATE_DISCOVERY"} if self.urgent else set()
        drafts = [task for task in self.tasks.values() if task["status"] == "DRAFT" and not task["requested"]]
        reasons |= {"OPEN_DRAFTS"} if drafts else set()
        reasons |= {"SPRINT_COMPLETE"} if self.is_done() else set()
        reasons |= {"BREAKER_TRIPPED"} if self.trips and "halt" not in self.trips else set()
        failed = [task for task in self.tasks.values() if task["status"] == "INTEGRATION_FAILED"]
        return reasons | ({"INTEGRATION_FAILED"} if any(map(self.is_unfixable, failed)) else set())

    def is_unfixable(self, task: Entry) -> bool:
        coders = {agent for agent in self.runs if agent.startswith("coder-")} - {*task["failed"]}
        return len(task["failed"]) >= 2 or (not task["reserved"] and coders <= self.offline)

    def claim_planning(self, agent: str) -> str:
        """What the machine may observe: a refusal is always allowed, and after it nothing has changed."""
        held = self.plan["run"]
        require(held is None or self.is_abandoned(held, self.plan["lease"]))
        require(self.reasons_to_plan() and not self.work_of(agent))
        run = self.new_run(agent)
        self.plan = {"run": run, "trigger": None, "lease": self.lease()}
        return run

    def end_planning(self, run: str, *, undo: bool = False) -> None:
        if self.plan["run"] == run:
            if self.plan["trigger"] == "SPRINT_COMPLETE" and self.is_done() and not undo:
                self.goal = "COMPLETED"
            self.plan = {"run": None, "trigger": None, "lease": None}

    def give_back(self, agent: str) -> None:
        for kind, name in self.work_of(agent):
            if kind == "planning":
                self.end_planning(self.plan["run"])
            elif name and kind == "review":
                self.release_review(name, self.tasks[name]["review_run"])
            elif name and kind == "claim" and self.tasks[name]["run"] and not self.tasks[name]["reserved"]:
                self.stop(name, self.tasks[name]["run"])

    def report(self, kind: str, text: str, urgency: str, during: str) -> None:
        """A report of coder-1 during a task, at most 20: open discoveries of the task, and anomalies of its run."""
        reporter = f"{kind} {during}" if kind == "discovery" else "anomaly"
        counts = [name for name, by in self.reporters.items() if by == reporter]
        require(sum(kind != "discovery" or self.reports[name] == "open" for name in counts) < 20, "enough of them")
        if kind == "discovery":
            require(urgency in ("immediate", "deferred") and text.strip())
            name = f"d-{1 + sum(key.startswith('d-') for key in self.reports)}"
            self.urgent |= {name} if urgency == "immediate" else set()
        else:
            require(kind in ("workaround", "tests_weakened", "spec_gap"), "unknown kind, or details are missing")
            name = f"a-{1 + sum(key.startswith('a-') for key in self.reports)}"
        self.reports[name], self.reporters[name] = "open", reporter

    def resolve(self, name: str, why: str) -> None:
        require(self.reports.get(name) == "open" and why.strip())
        self.reports[name], self.urgent = "resolved", self.urgent - {name}

    def resolve_trips(self, by: str, root_cause: str) -> None:
        require(self.trips and root_cause.strip() not in ("", "…"))
        require(by.startswith("human:") or "halt" not in self.trips, "only a person resolves a halt")
        self.trips = ()

    def set_setting(self, name: str, text: str) -> None:
        require(name in self.settings and (text == "null" or text.isdigit()))
        require(name == "slots.max" or text != "null")
        require(name != "slots.max" or text != "0")
        self.settings[name] = None if text == "null" else int(text)

    def archivable(self) -> set[str]:
        """Closed tasks that nothing open needs on the board."""
        return {name for name, task in self.tasks.items() if task["status"] in FINAL and self.may_leave(name, task)}

    def may_leave(self, name: str, task: Entry) -> bool:
        leaves = [self.tasks.get(leaf, ABSENT) for leaf in self.leaves(name)]
        is_closed = all(leaf["status"] in (None, *FINAL) for leaf in leaves)
        is_to_land = any(leaf["status"] == "MERGED" and leaf["epic"] and not leaf["landed"] for leaf in leaves)
        names_living_run = any(run in self.living for _, run in task["done"])
        open_deps = [other["deps"] for other in self.tasks.values() if other["status"] not in FINAL and other["target"]]
        is_needed = any(name in set().union(*map(self.replacements, deps)) for deps in open_deps)
        return is_closed and not is_to_land and not names_living_run and not is_needed and task["undo"] != "begun"

    def archive(self, names: Iterable[str]) -> None:
        names = set(names)
        require(names <= self.archivable(), "an open task needs it")
        for name in names:
            self.archived[name] = self.outcome(name)
        for name in names:
            del self.tasks[name]

    def outcome(self, name: str) -> str:
        """MERGED if the work is on integration."""
        leaves = self.leaves(name)
        merged = {leaf for leaf in leaves if self.is_on_integration(self.tasks.get(leaf, ABSENT))}
        merged |= {leaf for leaf in leaves if self.archived.get(leaf) == "MERGED"}
        return "MERGED" if leaves and leaves == merged else "ABANDONED"

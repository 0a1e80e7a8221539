"""What each decision does: claims, sessions, jobs, and what is said on the board about them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta

from liza.board import signals, wake_up
from liza.crew.drift import drift
from liza.crew.liza_path import liza_path, liza_words
from liza.programs.messages import inbox
from liza.programs.session import run_directory, session_process, setup_note
from liza.programs.terminal import tmux
from liza.rules.durations import spelled
from liza.rules.errors import BoardInconsistent, DiskRefused, LizaError, LockTimeout, NotYours, ProgramMissing
from liza.rules.secrets import redacted
from liza.rules.sessions import actions, model_silence
from liza.rules.sessions.decide import backoff, holding
from liza.rules.sessions.model_silence import ModelSilence
from liza.rules.tasks import claims, coding
from liza.rules.tasks.claims import HELD_UP, QUOTA, STOP, TOLD_ONLY, UNANSWERED, UNUSABLE
from liza.rules.tasks.give_back import let_go
from liza.rules.tasks.planning import WAKES, claim_planning
from liza.supervisor import jobs
from liza.supervisor.conclude import LOOPED, Came, settle
from liza.supervisor.launch import Launcher, SetUpDue
from liza.supervisor.memory import Memory
from liza.supervisor.message_carrier import MessageCarrier
from liza.verbs import claim, review

LEAST_QUOTA_REST = 5.0  # seconds: what a limit of use says of its end is rounded
REMINDER = (
    "You are still {run}, and nobody answers here. Go on with your task, and end it in one of the ways that your brief "
    "names; run `{liza} ready` to read it again."
)
WARNING = (
    "Liza sees {why}. Do something else, or say `{liza} block` with what you need. If you wait for something, sleep "
    "longer between two looks at it. A session that goes on like this is ended."
)
AT_ONCE = 0.5  # seconds of grace for a session that has nothing left to say


class Steps:
    """Carries out the decisions of one agent's supervisor; ``post`` hears of the ends of jobs, ``say`` of each step."""

    def __init__(
        self,
        agent: str,
        launcher: Launcher,
        memory: Memory,
        post: Callable[[object], None],
        say: Callable[[str], None],
    ) -> None:
        self.crew = launcher.crew
        self.agent = agent
        self.launcher = launcher
        self.memory = memory
        self.post = post
        self.say = say
        self.carrier = MessageCarrier(agent, launcher, post, say)

    def carry_out(self, action: actions.Action) -> None:
        """Do what was decided. Raises LizaError and OSError where that fails, with nothing half done on the board."""
        match action:
            case actions.Claim(task):
                claim.take(self.crew, self.agent, task)
            case actions.ClaimReview(task):
                review.claim_review(self.crew, self.agent, task)
            case actions.ClaimPlanning(trigger):
                evidence = self.crew.evidence(self.crew.board.read())
                with self.crew.change(self.agent, "plan") as tx:
                    tx.state, _ = claim_planning(tx.state, self.agent, self.crew.clock.now(), evidence)
                self.say(f"plans: {WAKES.get(trigger, trigger.lower().replace('_', ' '))}")
            case actions.StartSession(run):
                self._start(run)
            case actions.Resume(task, run):
                with self.crew.change(self.agent, "resume", task) as tx:
                    tx.state, _ = claims.resume(tx.state, task, run, self.crew.clock.now())
            case actions.StopSession(run, why, unusable, model):
                self._stop(run, why, unusable, model)
            case actions.Settle(run):
                self._settle(run)
            case actions.Renew(run):
                self._renew(run)
            case actions.BlockTask(task, reason):
                with self.crew.change(self.agent, "block", task) as tx:
                    tx.state = coding.block_by_supervisor(tx.state, task, reason, self.crew.clock.now())
            case actions.Merge(task):
                self._merge(task)
            case actions.LetGo():
                self._let_go()
            case actions.Deliver(run, step):
                self.carrier.carry_out(step, run)
            case actions.Remind(run):
                self._remind(run)
            case actions.Warn(run, why):
                self._warn(run, why)
            case actions.Ask(run, question):
                self._ask(run, question)
            case actions.NoteModelSilence(run, model):
                self._tell(run, model)
            case actions.Pause(why):
                self._pause(why)
            case _:
                raise AssertionError(action)

    def _start(self, run: str) -> None:
        """The one start path. What keeps a program from starting counts as a crash, with its true reason."""
        try:
            started = self.launcher.start(run)
        except (NotYours, BoardInconsistent, DiskRefused, LockTimeout):
            # What it held a moment ago is gone, or not laid out yet, or the board or the disk is in the way, which is
            # no fault of the program: look again, but not at once.
            raise
        except ProgramMissing as error:
            self.memory.unusable = f"{error.message} (next: {error.hint})"
            return
        except LizaError as error:
            # No program or task is at fault while integration is gone.
            drift.need_integration(self.crew, self.crew.board.read())
            self._crash(run, error.message)
            return
        run_directory.note_waits(self.crew.paths, self.agent, None)
        if isinstance(started, SetUpDue):
            self._set_up(started)
        elif isinstance(started, session_process.NotStarted):
            self.say(f"{run} did not start: {started.reason}")
            if isinstance(session_process.look(self.crew.run_dir(run).path), session_process.Never):
                # No end will come that could be counted. What was never started says nothing about the task.
                self._count_crash()
        else:
            self.memory.own = run

    def _set_up(self, due: SetUpDue) -> None:
        order = jobs.Order(
            name=f"set-up {due.slot}",
            words=["/bin/sh", "-c", due.command],
            directory=self.crew.paths.slot(due.slot),
            log=self.crew.paths.logs / f"setup-{due.slot}.log",
            env=self.launcher.tool_environment(due.run),
            guarded=True,
            limit=self.crew.board.read().config.integration_timeout,
        )
        setup_note.note(self.crew.paths, setup_note.SetUp(run=due.run, started=self.crew.clock.now()))
        self.memory.job = jobs.start(order, self.post)
        self.say(f"set-up in {due.slot}: {due.command}")

    def _merge(self, task: str) -> None:
        self.memory.merge_tried = (self.crew.board.read().revision, task)
        order = jobs.Order(
            name=f"merge {task}",
            words=[*liza_words(), "merge", task, "--for", self.agent, "--json"],
            directory=self.crew.paths.root,
            log=self.crew.paths.logs / f"merger-{self.agent}.log",
            env=self.launcher.environ,
        )
        self.memory.job = jobs.start(order, self.post)

    def _stop(self, run: str, why: str, unusable: bool, model: str) -> None:
        directory = self.crew.run_dir(run)
        directory.note_stop(self.crew.clock.now(), why, unusable, model)
        grace = 1.0 if self.memory.firm else float(min(self.crew.board.read().config.grace, 10))
        self.say(f"stopping {run}: {why}")
        session_process.stop(directory.path, run, self.crew.paths.root, AT_ONCE if why in ("over", "fenced") else grace)

    def _settle(self, run: str) -> None:
        directory = self.crew.run_dir(run)
        held = holding(self.crew.board.read(), self.agent)
        came = settle(self.crew, directory, self.launcher.preset, self.memory.environ)
        self.memory.forget_session()
        # Planning has no limit of tries of its own.
        if came.kind == "crashed" or (came.kind == LOOPED and held is not None and held.kind == "planning"):
            self.memory.crashed(self.crew.clock.monotonic())
        if came.kind in ("crashed", LOOPED, HELD_UP):
            self._rest()
        elif came.kind == QUOTA:
            self._wait_for_quota(came)
        elif came.kind == UNANSWERED:
            self._wait_for_model(run, came)
        elif came.kind == UNUSABLE:
            self.memory.unusable, self.memory.by_hand = came.why, came.by_hand
        elif came.kind == "handed off":
            pause = self.crew.board.read().config.restart_after_handoff
            self.memory.rest_until = self.crew.clock.monotonic() + pause
        if came.kind in ("finished", "handed off"):
            self.memory.in_vain = self.memory.limited = self.memory.unanswered = 0
        if came.kind in ("crashed", *TOLD_ONLY) and holding(self.crew.board.read(), self.agent) is None:
            self.say(f"{run} {came.kind}: {came.why}")
        wake_up.ring(self.crew.paths, self.agent)

    def _rest(self) -> None:
        """Longer after each session in a row that came to nothing, whoever's fault that was."""
        self.memory.in_vain += 1
        first = self.crew.board.read().config.restart_after_crash
        self.memory.rest_until = self.crew.clock.monotonic() + backoff(self.memory.in_vain, first)

    def _wait_for_quota(self, came: Came) -> None:
        """Wait until the limit is over, where that was said; otherwise a while, and longer each time, up to an hour."""
        self.memory.limited += 1
        if came.until is not None:
            rest = max(0.0, (came.until - self.crew.clock.now()).total_seconds()) + 1.0
        else:
            first = self.crew.board.read().config.restart_after_crash * model_silence.QUOTA_FACTOR
            rest = backoff(self.memory.limited, first, model_silence.LONGEST_QUOTA_REST)
        self._wait_until(max(rest, LEAST_QUOTA_REST), came.why)

    def _wait_for_model(self, run: str, came: Came) -> None:
        """Rest longer after each session in a row whose model gave no answer, and keep the task, about which that says
        nothing."""
        self.memory.unanswered += 1
        count = self.memory.unanswered
        rest = backoff(count, self.crew.board.read().config.restart_after_crash)
        why = came.why if count == 1 else f"{came.why} ({count} sessions in a row)"
        self._wait_until(rest, why)
        if count == model_silence.ALERT_AFTER:
            self.crew.write_down([f"model  {run}: {why}; it is tried again. Next: liza status"])
            self.say(f"! {why}; it is tried again, more rarely each time")

    def _wait_until(self, rest: float, why: str) -> None:
        """Rest, and keep for ``status`` until when and why."""
        now = self.crew.clock.now()
        self.memory.rest_until = self.crew.clock.monotonic() + rest
        waits = run_directory.Waits(reason=why, until=now + timedelta(seconds=rest))
        run_directory.note_waits(self.crew.paths, self.agent, waits)

    def _remind(self, run: str) -> None:
        text = REMINDER.format(run=run, liza=shlex.quote(str(liza_path())))
        inbox.put(self.crew.paths, self.agent, text, "liza", self.crew.clock.now())
        known = self.memory.session
        if known is not None and known.run == run:
            known.reminders, known.idle = known.reminders + 1, None
        self.say(f"{run} waits at its terminal: reminded of the ways to end")

    def _warn(self, run: str, why: str) -> None:
        told = redacted(why)
        text = WARNING.format(why=told, liza=shlex.quote(str(liza_path())))
        inbox.put(self.crew.paths, self.agent, text, "liza", self.crew.clock.now())
        known = self.memory.session
        if known is not None and known.run == run:
            known.warned = True
        self.crew.write_down([f"no_progress  {run} makes {told}. Next: liza logs {self.agent}"])
        self.say(f"! {run}: {told}; it was told so, and is ended if it goes on like that")

    def _ask(self, run: str, question: str | None) -> None:
        self.crew.run_dir(run).note_asks(question)
        if question is None:
            self.say(f"{run} asks no more")
            return
        self.crew.write_down([f"question  {run} shows {question}. Next: liza attach {self.agent}"])
        self.say(f"! {run} shows {question}: liza attach {self.agent}")

    def _tell(self, run: str, model: ModelSilence | None) -> None:
        """Keep for ``status`` why the session gets no answer, and say so when that changes."""
        directory = self.crew.run_dir(run)
        if model is None:
            directory.note_model(None)
            self.say(f"{run} gets answers again from its model")
            return
        now, timeout = self.crew.clock.now(), self.crew.board.read().config.answer_timeout
        left = max(0.0, model_silence.ends_in(model, timeout))
        directory.note_model(
            run_directory.ModelNote(
                kind=model.kind,
                since=now - timedelta(seconds=round(model.seconds)),
                ends=now + timedelta(seconds=round(left)),
                words=model.words,
                retried=model.retried,
            )
        )
        program = self.launcher.preset.name
        self.say(f"! {run}: {model_silence.present(model, left, program)}")
        wake_up.ring(self.crew.paths, self.agent)

    def _pause(self, why: str) -> None:
        """No more may be spent: PAUSE for everyone, and an alert for the person."""
        told = f"{why}: raise config.budget (liza edit), then: liza resume"
        signals.raise_signal(
            self.crew.paths, "PAUSE", f"{self.crew.clock.now():%Y-%m-%dT%H:%M:%SZ} {self.agent}\n{told}\n"
        )
        self.crew.write_down([f"budget  {told}"])
        self.say(f"! {told}")

    def _crash(self, run: str, why: str) -> None:
        """A session that could not even be prepared."""
        self._count_crash()
        self.say(f"{run} crashed before it began: {why}")
        held = holding(self.crew.board.read(), self.agent)
        if held is not None and held.kind == "work" and held.task is not None:
            with self.crew.change(self.agent, "crash", held.task) as tx:
                now = self.crew.clock.now()
                tx.state = coding.session_over(
                    tx.state, held.task, held.run, event="crash", detail=why, moved=False, now=now
                )

    def _count_crash(self) -> None:
        """One more against this supervisor, and a rest before the next."""
        self.memory.crashed(self.crew.clock.monotonic())
        self._rest()

    def _renew(self, run: str) -> None:
        with self.crew.board.renewal(self.agent) as tx:
            tx.state = claims.renew(tx.state, run, self.crew.clock.now())
        if self.memory.session is not None:
            self.memory.session.beat = self.crew.clock.monotonic()

    def _let_go(self) -> None:
        """Give back what is held and has no session."""
        state = self.crew.board.read()
        held = holding(state, self.agent)
        if held is None:
            return
        with self.crew.change(self.agent, STOP, held.task) as tx:
            tx.state = let_go(tx.state, self.agent, self.crew.clock.now())

    def log_again(self, run: str) -> None:
        """Write down again what a terminal shows: what did died, or the disk was full. Raises OSError, Refused."""
        pane = tmux.pane(self.crew.paths.root, run)
        if pane is not None:
            pane.log()
            self.say(f"! what {run} showed was not written down for a while; output.log goes on now")

    def settle_job(self) -> None:
        """A child of ours is gone: what it was for goes on, or what kept it from its end is said."""
        job = self.memory.job
        if job is None or job.ended is None:
            return
        event, self.memory.job = job.ended, None
        if job.name.startswith("set-up "):
            slot = job.name.removeprefix("set-up ")
            setup_note.forget(self.crew.paths, self.agent)
            if event.code == 0:
                self.launcher.set_up_done(slot)
                self.say(f"set-up in {slot} done after {spelled(job.seconds)}")
                return
            held = holding(self.crew.board.read(), self.agent)
            why = f"set-up {job.failure(event.code)}"
            self._crash(held.run if held else self.agent, why)
            self._wait_until(max(0.0, self.memory.rest_until - self.crew.clock.monotonic()), why)
            return
        if event.code not in (0, 1):
            self.say(f"{job.name} ended with exit {event.code}: {job.tail(300)}")
        self._rest_after_merge(job.name.removeprefix("merge "), failed=event.code not in (0, 1))

    def _rest_after_merge(self, task_id: str, *, failed: bool) -> None:
        """Try again later, and ever more rarely, what failed and left no mark on its task."""
        task = self.crew.board.read().task(task_id)
        if not failed or (task is not None and task.set_aside is not None):
            self.memory.merges_failed = 0
            return
        self.memory.merges_failed += 1
        self.memory.merge_tried = None
        first = self.crew.board.read().config.restart_after_crash
        pause = backoff(self.memory.merges_failed, first)
        self.memory.merge_rest_until = self.crew.clock.monotonic() + pause

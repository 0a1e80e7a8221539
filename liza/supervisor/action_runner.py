"""Carry out each action that `decide` returns: claims, sessions, jobs, and their changes on the board."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from liza.crew import layout
from liza.git import integration_tip
from liza.merging import merge_lock
from liza.merging.rules import epic_rules
from liza.model.derived import CurrentWork, find_current_work
from liza.model.errors import (
    BoardInconsistent,
    LizaError,
    LockTimeout,
    NoAccount,
    NotOwner,
    ProgramMissing,
    WriteFailed,
)
from liza.model.history_events import HistoryEvent
from liza.model.model import FailedCheck
from liza.model.narration import LIZA, Detail
from liza.model.session_ends import OUTCOME_RULES, STOP_RULES, Fault, OutcomeRule, RestKind, SessionOutcome, StopReason
from liza.model.statuses import StartupCheck, WorkKind
from liza.programs import liveness
from liza.programs.rules import model_silence
from liza.programs.session import run_directory, session_process
from liza.programs.session.outcomes import SessionEnd
from liza.programs.terminal import tmux
from liza.project.rules import output_causes
from liza.supervisor import jobs
from liza.supervisor.conclude import conclude_session, note_account_obstacle
from liza.supervisor.launch import Launcher, SetUpDue
from liza.supervisor.memory import FailedSetUp, Memory, UnusableProgram
from liza.supervisor.merge_times import LONG_MERGE, MergeTimes
from liza.supervisor.message_carrier import MessageCarrier, SessionMessages
from liza.supervisor.rules import actions
from liza.supervisor.rules.session_facts import JobKind
from liza.system import file_growth
from liza.system.installation import liza_argv
from liza.tasks import claim
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import claims, coding, leases
from liza.tasks.rules.planning import WAKE_REASONS, checkpoint_reason, claim_planning, give_back_work
from liza.text.formats import format_duration, format_time

SHORT_GRACE = 0.5  # seconds from SIGTERM to SIGKILL for a session that has already closed its work


class ActionRunner:
    """Carries out the actions of one agent's supervisor. ``post`` receives job events; ``notify`` prints each step."""

    def __init__(
        self,
        agent: str,
        launcher: Launcher,
        memory: Memory,
        post: Callable[[object], None],
        notify: Callable[[str], None],
    ) -> None:
        self.crew = launcher.crew
        self.agent = agent
        self.launcher = launcher
        self.memory = memory
        self.post = post
        self.notify = notify
        self.merge_times: MergeTimes | None = None
        self.messages = SessionMessages(agent, launcher, memory, notify)
        self.carrier = MessageCarrier(agent, launcher, post, notify)

    def carry_out(self, action: actions.Action) -> None:
        """Carry out ``action``. Raises LizaError or OSError if it fails; the board then has no partial change."""
        match action:
            case actions.Claim(task):
                claim.claim_task(self.crew, self.agent, task, or_next=True)
            case actions.ClaimReview(task):
                claim.claim_review(self.crew, self.agent, task, or_next=self.memory.only is None)
            case actions.ClaimPlanning(trigger):
                evidence = gather_evidence(self.crew, self.crew.board.read())
                with self.crew.change(self.agent, "plan") as tx:
                    tx.state, _ = claim_planning(tx.state, self.agent, self.crew.clock.now(), evidence)
                self.notify(Detail(f"plans: {WAKE_REASONS.get(trigger, trigger.lower().replace('_', ' '))}"))
            case actions.StartSession(run):
                self._start(run)
            case actions.Resume(task, run):
                with self.crew.change(self.agent, "resume", task) as tx:
                    tx.state, _ = claims.resume(tx.state, task, run, self.crew.clock.now())
            case actions.StopSession(run):
                self._stop_session(run, action)
            case actions.ConcludeSession(run):
                self._conclude_session(run)
            case actions.RenewLease(run):
                self._renew_lease(run)
            case actions.BlockTask(task, reason):
                with self.crew.change(self.agent, "block", task) as tx:
                    tx.state = coding.block_by_supervisor(tx.state, task, reason, self.crew.clock.now())
            case actions.Merge(subject):
                self._start_merger(subject)
            case actions.RenewProof():
                self._start_proof()
            case actions.GiveBack():
                self._give_back()
            case actions.DeliverMessage(run, step):
                self.carrier.carry_out(step, run)
                session = self.memory.session_of(run)
                if session is not None:
                    session.quoted = None  # the step may have written the brief
            case actions.Remind(run):
                self.messages.remind(run)
            case actions.Warn(run, why):
                self.messages.warn(run, why)
            case actions.AskHandoff(run, usage):
                self.messages.ask_handoff(run, usage)
            case actions.ReportQuestion(run, question):
                self.messages.report_question(run, question)
            case actions.NoteModelSilence(run, model):
                self.messages.report_model_silence(run, model)
            case actions.PauseCrew(why):
                self._pause_crew(why)
            case actions.SetCheckpoint(why):
                self._set_checkpoint(why)
            case _:
                raise AssertionError(action)

    def _start(self, run: str) -> None:
        """Start a session with the launcher. A failed start counts as a crash and is recorded with its reason."""
        try:
            started = self.launcher.start(run)
        except (NotOwner, NoAccount, BoardInconsistent, WriteFailed, LockTimeout):
            # The claim is gone, its worktree is not prepared yet, no account can be used, or the board or the disk
            # failed. The program is not at fault: the loop tries again after a delay.
            raise
        except ProgramMissing as error:
            self.memory.unusable = UnusableProgram(f"{error.message} (next: {error.hint})")
            return
        except LizaError as error:
            # Without the integration branch no program or task is at fault: this raises and the loop tries again.
            integration_tip.require_integration(self.crew.git, self.crew.board.read())
            self._record_failed_start(run, error.message)
            return
        run_directory.write_wait(self.crew.paths, self.agent, None)
        if isinstance(started, SetUpDue):
            self._start_set_up(started)
        elif isinstance(started, session_process.StartFailed):
            if layout.is_deleted(self.crew.paths):
                raise layout.deleted_error(self.crew.paths)
            self.notify(f"{run} did not start: {started.reason}")
            if isinstance(liveness.read_state(self.crew.run_dir(run).path), liveness.NoSession):
                # No session end will follow that could be counted. A session that never started says nothing about
                # the task.
                self._count_crash()
        else:
            self.memory.own_run = run
            self.memory.failed_set_up = None

    def _start_set_up(self, set_up: SetUpDue) -> None:
        words, environment = (
            ["/bin/sh", "-c", set_up.command],
            self.launcher.set_up_environment(set_up.run, set_up.slot),
        )
        box = self.launcher.open_set_up_box(set_up)
        spec = jobs.JobSpec(
            kind=JobKind.SET_UP,
            subject=set_up.slot,
            argv=words if box is None else box.wrap(words),
            directory=self.crew.paths.slot(set_up.slot),
            log=self.crew.paths.logs / f"setup-{set_up.slot}.log",
            env=environment if box is None else box.environment(environment),
            guarded=True,
            limit=self.crew.board.read().config.integration_timeout,
        )
        run_directory.write_setup_note(
            self.crew.paths, run_directory.SetupNote(run=set_up.run, started=self.crew.clock.now())
        )
        self.memory.job = jobs.start_job(spec, self.post)
        self.notify(f"set-up in {set_up.slot}: {set_up.command}")

    def _start_merger(self, subject: str) -> None:
        """Start a merger as a child process: it holds the merge lock and runs the tests, so the loop must not wait.

        Start none if another supervisor has the turn, or has had it since this one decided.
        """
        with merge_lock.take_turn(self.crew.paths) as turn:
            state = self.crew.board.read()
            if turn is None or not epic_rules.may_merge(state, subject):
                return
            self.memory.merges = self.memory.merges.started(state.revision, subject)
            spec = jobs.JobSpec(
                kind=JobKind.MERGE,
                subject=subject,
                argv=[*liza_argv(), "merge", subject, "--for", self.agent, "--json"],
                directory=self.crew.paths.root,
                log=self.crew.paths.logs / f"merger-{self.agent}.log",
                env=self.launcher.environ,
                descriptors=(turn,),
            )
            self.memory.job = jobs.start_job(spec, self.post)
            self.merge_times = MergeTimes(self.crew, self.memory.job, self.notify)
            if state.config.integration_command:
                self.merge_times.announce(state.config.integration_command)

    def _start_proof(self) -> None:
        """Start the proof of the tests as a child process, which has the turn to merge: nothing is merged meanwhile."""
        with merge_lock.take_turn(self.crew.paths) as turn:
            if turn is None or not self.crew.board.read().config.proof.changed:
                return
            spec = jobs.JobSpec(
                kind=JobKind.PROOF,
                subject="of the tests",
                argv=[*liza_argv(), "doctor", "--tests"],
                directory=self.crew.paths.root,
                log=self.crew.paths.logs / f"prover-{self.agent}.log",
                env=self.launcher.environ,
                descriptors=(turn,),
            )
            self.memory.job = jobs.start_job(spec, self.post)
            self.notify(f"{LIZA}  the tests are proved again: {', '.join(self.crew.board.read().config.proof.changed)}")

    def pass_on_merge_turn(self, action: actions.Action) -> None:
        """Wake the other supervisors if a merge is due after this one's merger and ``action`` does not start it.

        They found the turn taken, and its end causes no event for them.
        """
        if not self.memory.has_ended_turn:
            return
        self.memory.has_ended_turn = False
        is_due = epic_rules.next_subject(self.crew.board.read(), self.crew.clock.now()) is not None
        if is_due and not isinstance(action, actions.Merge):
            file_growth.wake_watchers(self.crew.paths, self.agent)

    def _stop_session(self, run: str, action: actions.StopSession) -> None:
        """Write the stop note and end the session's processes. The next pass concludes the session."""
        directory = self.crew.run_dir(run)
        # Before the signal: if this supervisor crashes, the next one still knows that the end was intended, and why.
        directory.write_stop(self.crew.clock.now(), action.reason, action.sentence)
        grace = 1.0 if self.memory.force else float(min(self.crew.board.read().config.grace, 10))
        line = f"stopping {run}: {action.sentence}"
        self.notify(Detail(line) if action.reason is StopReason.OVER else line)
        grace = SHORT_GRACE if STOP_RULES[action.reason].short_grace else grace
        session_process.stop(directory.path, run, self.crew.paths.root, grace)

    def _conclude_session(self, run: str) -> None:
        """Record the end of a session, and set how long the agent rests, by the outcome."""
        directory = self.crew.run_dir(run)
        work = find_current_work(self.crew.board.read(), self.agent)
        result = conclude_session(self.crew, directory, self.launcher.preset, self.launcher.environ, self.notify)
        self.memory.forget_session()
        rule = OUTCOME_RULES[result.outcome]
        # Planning has no limit of tries of its own, so a planning session without progress counts as a crash.
        has_looped = result.outcome is SessionOutcome.LOOPED and work is not None and work.kind == WorkKind.PLANNING
        if rule.fault is Fault.CRASH or has_looped:
            task = work.task if work is not None else None
            self.memory.streak = self.memory.streak.crashed(self.crew.clock.monotonic(), task)
        # With an obstacle this agent rests only if no other account can be used: `situation.find_account_wait`.
        if not note_account_obstacle(self.crew, directory, result, self.launcher.environ, self.notify):
            self._rest_after(result, work)
            self._report_end(run, result, rule, work)
        file_growth.wake_watchers(self.crew.paths, self.agent)

    def _rest_after(self, result: SessionEnd, work: CurrentWork | None) -> None:
        """Set the rest before the next session. ``work``: what the agent held before the session was concluded."""
        clock, config = self.crew.clock, self.crew.board.read().config
        limit = None if result.retry_at is None else (result.retry_at - clock.now()).total_seconds()
        task = work.task if work is not None else None
        self.memory.streak = self.memory.streak.saw(result.outcome, clock.monotonic(), config, limit, task)

    def _report_end(self, run: str, result: SessionEnd, rule: OutcomeRule, work: CurrentWork | None) -> None:
        """Tell the person why the agent rests or cannot work, and of an end that no task's history shows.

        ``work``: what the agent held before the session was concluded.
        """
        match rule.rest:
            case RestKind.USAGE_LIMIT:
                self._note_rest(result.reason)
            case RestKind.NO_ANSWER:
                self._report_no_answer(run, result.reason)
            case RestKind.BACKOFF if rule.fault is Fault.CRASH and work is not None and work.kind != WorkKind.WORK:
                # A crash at a task is in its history, from which its alarm is derived.
                self._note_rest(f"its program crashed: {result.reason}")
            case RestKind.UNTIL_PERSON_ACTS:
                self.memory.unusable = UnusableProgram(
                    result.reason, result.needs_person, result.login_refused, result.model_refused
                )
        is_in_history = work is not None and work.kind == WorkKind.WORK
        if rule.reported and not is_in_history and find_current_work(self.crew.board.read(), self.agent) is None:
            self.notify(f"{run} {result.outcome}: {result.reason}")

    def _report_no_answer(self, run: str, reason: str) -> None:
        """Report a session without an answer of its model. The task stays claimed: the failure says nothing about
        it."""
        count = self.memory.streak.unanswered
        why = reason if count == 1 else f"{reason} ({count} sessions in a row)"
        self._note_rest(why)
        if count == model_silence.ALERT_AFTER_SESSIONS:
            self.crew.append_alert_log([f"model  {run}: {why}; Liza tries again. Next: liza status"])
            self.notify(f"! {why}; Liza tries again, with growing delays")

    def _note_rest(self, why: str) -> None:
        """Write the reason and the end of the rest for `status`."""
        clock = self.crew.clock
        until = clock.now() + timedelta(seconds=self.memory.streak.rest_seconds(clock.monotonic()))
        run_directory.write_wait(self.crew.paths, self.agent, run_directory.AgentWait(reason=why, until=until))

    def _pause_crew(self, why: str) -> None:
        """Raise PAUSE for the whole crew because the budget is used up. The alarm is derived from it."""
        text = f"{why}: raise the limit of config.budget, then: liza resume"
        self.crew.board.raise_signal("PAUSE", f"{format_time(self.crew.clock.now())} {self.agent}\n{text}\n")
        self.notify(f"! {text}")

    def _set_checkpoint(self, why: str) -> None:
        """Set CHECKPOINT for the whole crew, unless a person has spoken meanwhile. The alarm is derived from the
        board."""
        with self.crew.board.lock_signals(is_stop=True):
            if checkpoint_reason(self.crew.board.read()) is None:
                return
            now = format_time(self.crew.clock.now())
            self.crew.board.raise_signal("CHECKPOINT", f"{now} {self.agent}\n{why}; then: liza resume\n")
        self.notify(f"! {why}: liza resume")

    def _record_failed_start(self, run: str, why: str) -> None:
        """Count a crash for a session that failed before its program started."""
        self._count_crash()
        self.notify(f"{run} crashed before its program started: {why}")
        work = find_current_work(self.crew.board.read(), self.agent)
        if work is not None and work.kind == WorkKind.WORK and work.task is not None:
            with self.crew.change(self.agent, "crash", work.task) as tx:
                now = self.crew.clock.now()
                expected = "its supervisor starts the session"
                failed = FailedCheck(time=now, run=work.run, check=StartupCheck.SESSION, expected=expected, actual=why)
                noted = coding.note_failed_check(tx.state, work.task, failed)
                tx.state = coding.record_session_end(
                    noted, work.task, work.run, outcome=SessionOutcome.CRASHED, detail=why, moved=False, now=now
                )

    def _count_crash(self) -> None:
        """Count a crash of a session that did not start, and back off."""
        now, state = self.crew.clock.monotonic(), self.crew.board.read()
        work = find_current_work(state, self.agent)
        task = work.task if work is not None else None
        streak = self.memory.streak.crashed(now, task, started=False)
        self.memory.streak = streak.saw(SessionOutcome.CRASHED, now, state.config, task=task)

    def _renew_lease(self, run: str) -> None:
        """Renew the lease of the run on the board. A heartbeat adds no revision."""
        session = self.memory.session_of(run)
        meter = session.meter_thread if session is not None else None
        with self.crew.board.heartbeat(self.agent) as tx:
            usage = meter.latest.context_usage if meter is not None else None
            tx.state = leases.renew_lease(tx.state, run, self.crew.clock.now(), usage)
        if self.memory.session is not None:
            self.memory.session.times = self.memory.session.times.renewed(self.crew.clock.monotonic())

    def _give_back(self) -> None:
        """Give back the agent's claim if it has no session."""
        state = self.crew.board.read()
        work = find_current_work(state, self.agent)
        if work is None:
            return
        with self.crew.change(self.agent, HistoryEvent.STOP, work.task) as tx:
            tx.state = give_back_work(tx.state, self.agent, self.crew.clock.now())

    def resume_terminal_log(self, run: str) -> None:
        """Start logging the terminal again after its logger died or the disk was full. Raises OSError, Refused."""
        pane = tmux.find_pane(self.crew.paths.root, run)
        if pane is not None:
            pane.start_log()
            self.notify(f"! the terminal of {run} was not logged for a while; output.log continues now")

    def finish_job(self) -> None:
        """Conclude a job whose child has exited: continue with what waited for it, or report its failure."""
        job = self.memory.job
        if job is None or job.end_event is None:
            return
        event, self.memory.job = job.end_event, None
        match job.kind:
            case JobKind.SET_UP:
                self._finish_set_up(job, event.exit_status)
            case JobKind.PROOF:
                self.memory.proof_tried_after = self.crew.board.read().config.proof.changed
                self.memory.has_ended_turn = True
                self.notify(f"{LIZA}  {job.name} ended with exit {event.exit_status}: {job.read_tail(300)}")
            case JobKind.MERGE:
                failed = event.exit_status not in (0, 1)
                if self.merge_times is not None:
                    self.merge_times.report()
                if failed:
                    self.notify(f"{job.name} ended with exit {event.exit_status}: {job.read_tail(300)}")
                # After a failure this supervisor tries again itself; the others would only fail, too. This comes
                # first: the board may be unreadable now.
                self.memory.has_ended_turn = not failed
                self._back_off_after_merge(job.subject, failed=failed)

    def _finish_set_up(self, job: jobs.Job, status: int) -> None:
        """Mark the set-up of a slot as done, or count its failure as a failed start of the session."""
        run_directory.remove_setup_note(self.crew.paths, self.agent)
        if status == 0:
            self.memory.failed_set_up = None
            self.launcher.mark_set_up_done(job.subject)
            line = f"set-up in {job.subject} done after {format_duration(job.seconds)}"
            self.notify(line if job.seconds >= LONG_MERGE else Detail(line))
            return
        work = find_current_work(self.crew.board.read(), self.agent)
        failed = self._describe_failed_set_up(job, status, work)
        self.memory.failed_set_up = failed
        self._record_failed_start(
            work.run if work else self.agent, f"{failed.reason}\n{job.read_tail(300) or 'no output'}"
        )
        self._note_rest(failed.reason)

    def _describe_failed_set_up(self, job: jobs.Job, status: int, work: CurrentWork | None) -> FailedSetUp:
        """Return why a set-up failed, with the path of its log, and what to run next."""
        log = str(job.log.relative_to(self.crew.paths.root))
        reason = f"set-up {job.failure(status)} (log: {log})"
        unpushed = output_causes.find_unpushed_submodule(job.read_tail())
        if unpushed is None:
            return FailedSetUp(reason, f"less {log}")
        step = unpushed.push_command(work.task) if work is not None and work.task is not None else f"less {log}"
        return FailedSetUp(f"{reason}: {unpushed.reason}", step)

    def _back_off_after_merge(self, subject: str, *, failed: bool) -> None:
        """Back off after a merger that failed without a mark on its task or epic; reset the count otherwise."""
        state = self.crew.board.read()
        is_unmarked = failed and not epic_rules.is_retried(state, subject)
        self.memory.merges = self.memory.merges.saw(
            failed=is_unmarked, now=self.crew.clock.monotonic(), first=state.config.restart_after_crash
        )

"""A campaign: rounds of faults drawn from a seed, operators' commands between them; then everything must converge."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Final

import msgspec

from headgate.config.crash_points import CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.blame import Blame, false_losses
from headgate_lab.chaos.faults import FaultKind, Wound, strike
from headgate_lab.chaos.operating import OperatorThread
from headgate_lab.chaos.points import Doom, all_cells, strike_at
from headgate_lab.chaos.report import ChaosReport, Suffered
from headgate_lab.chaos.rounds import Rounds
from headgate_lab.chaos.world import CampaignParts, ChaosOptions, running_world
from headgate_lab.demo.display import Display
from headgate_lab.demo.ending import await_drained
from headgate_lab.demo.tables import all_replicate, copies
from headgate_lab.demo.watch import Chronicle, WatchError
from headgate_lab.parts.processes import Fate

QUIET_SECONDS: Final = 2.0
"""Between two rounds, once all tables replicate: without a moment free of faults the cost of one cannot be measured."""

TAKEOVER_SECONDS_MAX: Final = 300.0
"""Far beyond the goals, which the report shows: past this something does not work at all, however busy the machine."""

PEACE_SECONDS_MAX: Final = 400.0
"""For every table to replicate after a round: killed agents start Spark sessions, minutes under overload."""

RECOVERY_POLL_SECONDS: Final = 0.5


def run_campaign(options: ChaosOptions, display: Display) -> ChaosReport:
    """The whole of it. Raises what starting raises, WatchError, ServiceError, LoadError, CaptureError."""
    left_over: list[str] = []
    with running_world(options, display, left_over) as world:
        report = _Campaign(world, options, display).run()
        world.scratch.failed = not report.holds()
    return msgspec.structs.replace(report, left_over=tuple(left_over))


class _Campaign:
    def __init__(self, world: CampaignParts, options: ChaosOptions, display: Display) -> None:
        self._world = world
        self._options = options
        self._display = display
        self._random = Random(f"{options.seed}/faults")  # noqa: S311 - a choice, not a secret
        self._blame = Blame(options.lease_seconds)
        self._operator = OperatorThread(world.services, world.columns, options.seed)
        self._began = time.monotonic()
        self._rounds = Rounds(self._random)
        self._suffered: list[Suffered] = []
        with world.watch.condition:
            self._first_term = len(world.watch.seen.terms)

    def run(self) -> ChaosReport:
        world, display = self._world, self._display
        display.head(f"Faults, seed {self._options.seed}")
        if self._options.points:
            for point, doom in all_cells():
                self._meet(point, doom)
        else:
            self._operator.start()
            for kinds in self._drawn():
                self._round(kinds)
        seconds = time.monotonic() - self._began
        display.head("No more faults: operator and writers stop, everything must converge")
        self._operator.stop()
        self._operator.leave_running()
        self._await_convergence()
        self._wait_for("every copy of a table is done", lambda seen: not copies(seen.snapshot), PEACE_SECONDS_MAX)
        world.load.stop()
        drain_seconds = await_drained(
            world.watch,
            source_dsn=world.source_dsn,
            stands=world.target.stands,
            bootstrap=world.kafka.bootstrap,
            seed=self._options.seed,
            check=world.services.check,
            seconds_max=PEACE_SECONDS_MAX,
        )
        world.capture.drain()  # not before: the last rows by which the end is known are changes too
        lost = self._false_losses()
        display.say("comparing source and target row by row, all columns, and examining the audit")
        comparisons, audited = world.target.examine(world.source_dsn, world.columns.tables)
        return ChaosReport(
            sink=self._options.sink,
            seed=self._options.seed,
            lease_seconds=self._options.lease_seconds,
            seconds=seconds,
            suffered=tuple(self._with_pauses()),
            missed=self._rounds.missed,
            operations=self._operator.outcomes(),
            comparisons=comparisons,
            audited=audited,
            false_losses=tuple(lost),
            left_over=(),
            changes_written=world.load.counts().total(),
            drain_seconds=drain_seconds,
            is_hijacked=world.target.is_hijacked(),
        )

    def _drawn(self) -> Iterator[tuple[FaultKind, ...]]:
        if self._options.minutes is None:
            return self._rounds.short()
        deadline = self._began + 60 * self._options.minutes
        return self._rounds.until(lambda: time.monotonic() >= deadline)

    def _round(self, kinds: tuple[FaultKind, ...]) -> None:
        busy: set[str] = set()
        with ThreadPoolExecutor(len(kinds)) as pool:
            running = []
            for kind in kinds:
                asked = time.monotonic()
                wound = strike(self._world, kind, self._random, busy)
                self._rounds.note(kind, has_struck=wound is not None)
                if wound is None:
                    self._display.say(f"{kind}: no victim is free, retried at the end")
                    continue
                running.append(pool.submit(self._suffer, wound, asked))
            ended = [one.result() for one in running]
        self._suffered += ended
        self._await_convergence()
        self._pause(QUIET_SECONDS)

    def _meet(self, point: CrashPoint, doom: Doom) -> None:
        """Run one cell of the matrix, with no other fault under way."""
        try:
            wound = strike_at(self._world, point, doom, self._random)
        except TimeoutError as error:
            raise WatchError(f"{doom} {point}: {error}") from error
        self._suffered.append(self._suffer(wound, time.monotonic()))
        self._await_convergence()
        self._pause(QUIET_SECONDS)

    def _suffer(self, wound: Wound, struck_at: float) -> Suffered:
        """From the strike to the healing, measured by the records on the log in between."""
        tables = f", which ran {', '.join(sorted(wound.tables))}" if wound.tables else ""
        self._display.say(f"{wound.name}: {wound.victim}{tables}")
        touch = self._blame.begin(wound.touched, struck_at, holds_up=wound.holds_up)
        failover: float | None = None
        try:
            if wound.over is not None:
                what = f"{wound.name}: others take over from {wound.victim}"
                failover = self._wait_for(what, wound.over, TAKEOVER_SECONDS_MAX) - struck_at
                self._display.say(f"{wound.name}: taken over after {failover:.1f} s")
            self._pause(struck_at + wound.hold_seconds - time.monotonic())
        finally:
            if wound.heal is not None:
                wound.heal()
            touch.ended = time.monotonic()
        self._display.say(f"{wound.name}: made good after {touch.ended - struck_at:.1f} s")
        recovery = self._await_recovery(wound, struck_at)
        wall = time.time() - time.monotonic()
        return Suffered(
            fault=wound.name,
            victim=wound.victim,
            at_seconds=struck_at - self._began,
            seconds=touch.ended - struck_at,
            failover_seconds=failover,
            recovery_seconds=recovery,
            tables=tuple(sorted(wound.tables)),
            begin=wall + struck_at,
            end=wall + touch.ended,
        )

    def _await_recovery(self, wound: Wound, struck_at: float) -> float | None:
        """Seconds from the strike to the recovery that the target shows; None where the log shows it."""
        if wound.recovered is None:
            return None
        seconds_max = scaled_seconds(PEACE_SECONDS_MAX)
        while not wound.recovered():
            if time.monotonic() - struck_at > seconds_max:
                raise WatchError(f"{wound.name}: {wound.victim} has not recovered within {seconds_max:.0f} s")
            self._pause(RECOVERY_POLL_SECONDS)
        seconds = time.monotonic() - struck_at
        self._display.say(f"{wound.name}: recovered after {seconds:.1f} s")
        return seconds

    # --- waiting ------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._revive()
        self._world.check()

    def _revive(self) -> None:
        """What ended because it had been frozen is started again, as its supervisor would."""
        services = self._world.services
        for name, service in list(services.running.items()):
            if service.fate is Fate.THAWED and service.exit_code is not None:
                if name in services.agents:
                    services.start_agent(name)
                else:
                    services.start_coordinator(name)

    def _wait_for(self, what: str, holds: Callable[[Chronicle], bool], seconds: float) -> float:
        return self._world.watch.wait_for(what, holds, seconds, self._check)

    def _await_convergence(self) -> None:
        """Every agent has a session that lives, and every table replicates under one."""
        self._wait_for("every agent lives", self._all_live, PEACE_SECONDS_MAX)
        self._wait_for("every table replicates", lambda seen: all_replicate(seen.snapshot), PEACE_SECONDS_MAX)

    def _all_live(self, seen: Chronicle) -> bool:
        return all(seen.is_ready(agent) for agent in self._world.services.agents)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._check()
            time.sleep(min(0.5, max(0.0, deadline - time.monotonic())))

    # --- looking back -------------------------------------------------------------------------------------------

    def _false_losses(self) -> list[str]:
        services = self._world.services
        with self._world.watch.condition:
            seen = self._world.watch.seen
            owners = {
                term.owner_id: service.name
                for term in seen.terms
                for service in services.all
                if term.owner_id.endswith(f"-{service.pid}")
            }
            lost = false_losses(seen, self._blame, owners, self._first_term)
        return lost + [f"{name} ended by itself" for name in services.ended_by_themselves()]

    def _with_pauses(self) -> Iterator[Suffered]:
        """With the longest gap of each table that overlaps the fault, by the clock of the target's audit."""
        pauses = self._world.target.longest_pauses([(one.begin, one.end) for one in self._suffered])
        for one, longest in zip(self._suffered, pauses, strict=True):
            yield msgspec.structs.replace(one, pauses=longest)

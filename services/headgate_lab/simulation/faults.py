"""What happens to the world: processes killed, frozen, cut off and restarted; the log's transactions, cleaner and lag.

Each kind strikes by its own rate (profile.py). Whatever a fault breaks is mended after a while that is drawn too, and
everything is mended by ``stop``.
"""

from typing import TYPE_CHECKING, Final

from headgate.eventlog.log import Partition, Placed
from headgate.records.base import Fact
from headgate.records.keys import OutcomeKey
from headgate_lab.memory_log.log import CommitFault
from headgate_lab.simulation.agents import AgentProcess
from headgate_lab.simulation.executor import HANG_SECONDS
from headgate_lab.simulation.processes import Process, transactional_id

if TYPE_CHECKING:
    from headgate_lab.simulation.world import World

__all__ = ["Faults"]

RESTART_SECONDS: Final = (0.5, 2.0, 15.0)
"""A supervisor's pause; the last is longer than every lease."""

FREEZE_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 30.0)
"""Shorter than a lease, about one, and long after all others have continued."""

MEND_SECONDS: Final = (0.5, 2.0, 6.0, 20.0)

CLOCK_STEP_SECONDS: Final = (-30 * 86_400.0, -3_600.0, -10.0, 10.0, 3_600.0, 30 * 86_400.0)
"""A person sets the time, or NTP comes back after long; the monotonic clock knows nothing of it."""

SECOND_PROCESS_SHARE: Final = 0.3
"""How often a frozen agent is taken for dead by its supervisor, which starts another under the same name."""


class Faults:
    """See the module's docstring."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = world.chance
        self._due: list[tuple[float, str, str]] = []
        """(when, "start" or "mend", whom)."""
        self._open: list[tuple[float, str]] = []
        self.stopped = False

    def long_pause(self) -> float:
        """Seconds of a freeze."""
        return self._chance.choice(FREEZE_SECONDS)

    def strike(self) -> None:
        """One tick's faults."""
        world = self._world
        self._mend(world.clock)
        for process in list(world.processes.values()):
            if not process.is_over and not process.is_frozen_inside:
                self._strike_process(process)
        if world.strikes("outage"):
            self._outage()
        if world.strikes("both_movers"):
            self._strike_both_movers()
        if world.strikes("clock_step"):
            step = self._chance.choice(CLOCK_STEP_SECONDS)
            world.mark(f"the wall clock stepped {'back' if step < 0 else 'on'}")
            world.wall_shift_seconds += step
        if world.strikes("retention"):
            world.source.expire()
        if world.strikes("upgrade"):
            world.upgrades.upgrade_one()
        self._strike_log()

    def start_again(self, name: str) -> None:
        """A process has ended: its supervisor starts another after a while."""
        pause = self._world.upgrades.absence(name)
        if pause is None:
            pause = RESTART_SECONDS[0] if self.stopped else self._chance.choice(RESTART_SECONDS)
        self._due.append((self._world.clock + pause, "start", name))

    def stop(self) -> None:
        """No more faults; everything that was broken is mended."""
        world = self._world
        self.stopped = True
        world.broker.cancel_faults()
        for process in list(world.processes.values()):
            process.frozen_until = float("-inf")
            process.log.heal()
            for partition in world.broker.partitions():
                process.log.release(partition)
        for _, transaction in self._open:
            self._end_transaction(transaction)
        self._open.clear()

    def mend(self) -> None:
        """What is still to be started after ``stop``."""
        self._mend(self._world.clock)
        if self._world.profile.is_upgraded:
            self._world.upgrades.go_on()

    def _strike_process(self, process: Process) -> None:
        world, chance = self._world, self._chance
        if world.strikes("kill"):
            world.mark(f"killed {process.name[0]}")
            process.die()
            world.end(process)
            return
        if world.strikes("freeze") and process.frozen_until < world.clock:
            process.frozen_until = world.clock + self.long_pause()
            world.mark(f"frozen {process.name[0]}")
            is_first = world.processes.get(process.name) is process
            if isinstance(process, AgentProcess) and is_first and chance.random() < SECOND_PROCESS_SHARE:
                world.mark("a second process under a name")
                del world.processes[process.name]
                world.start(process.name)
                world.processes[f"{process.name} frozen {world.clock:.2f}"] = process
        if world.strikes("cut"):
            process.log.cut()
            self._later("mend", process.name)
        if world.strikes("hold"):
            partition = chance.choice(world.broker.partitions())
            process.log.hold(partition)
            world.mark(f"{partition.topic} lagged behind the others")
            self._later("mend", process.name)
        if world.strikes("reading_stopped"):
            partition, told = chance.choice(world.broker.partitions()), chance.random() < 0.5
            process.log.stop_reading(partition, told=told)
            world.mark(f"a client stopped reading {'and said so' if told else 'silently'}")
        if isinstance(process, AgentProcess) and world.strikes("turns_hung"):
            process.hangs_until = world.clock + chance.choice(HANG_SECONDS)
            world.mark("an agent hung while its heartbeats continued")
        if world.strikes("leave"):
            world.mark(f"asked to leave {process.name[0]}")
            process.leave()

    def _outage(self) -> None:
        """Everything of one kind, or simply everything, goes at once: a rack, a bad deployment."""
        world, whom = self._world, self._chance.choice(("a", "c", "ac"))
        for process in list(world.processes.values()):
            if process.name[0] in whom and not process.is_frozen_inside:
                process.die()
                world.end(process)
        world.mark(f"outage of {whom}")

    def _strike_both_movers(self) -> None:
        """The sessions that a moving table comes from and goes to: by chance alone both hardly ever go together."""
        world = self._world
        for state in world.log_audit.states.values():
            moving = next((record for _, record in sorted(state.spans.items()) if record.secondary is not None), None)
            if moving is None:
                continue
            for role in (moving.primary, moving.secondary):
                process = None if role is None else world.processes.get(role.agent)
                if process is not None and not process.is_frozen_inside:
                    process.die()
                    world.end(process)
            return

    def _strike_log(self) -> None:
        world, chance, broker = self._world, self._chance, self._world.broker
        role = transactional_id(chance.randrange(world.profile.shards))
        if world.strikes("commit_refused"):
            broker.fail_commit(role, CommitFault.REFUSED)
        if world.strikes("commit_uncertain"):
            broker.fail_commit(role, chance.choice((CommitFault.UNCERTAIN_APPLIED, CommitFault.UNCERTAIN_LOST)))
        if world.strikes("commit_left_open"):
            broker.fail_commit(role, CommitFault.UNCERTAIN_OPEN)
            self._open.append((world.clock + chance.choice(MEND_SECONDS), role))
        if world.strikes("fence"):
            broker.fence(role)
        if world.strikes("dangling") and not broker.has_open(role):
            broker.fence(role)
            junk = Placed(Partition("changefeed", int(role.rpartition("-")[2])), Fact(OutcomeKey("never"), None))
            broker.leave_open(role, [junk])
            self._open.append((world.clock + chance.choice(MEND_SECONDS), role))
        if world.strikes("compact"):
            self._compact(chance.choice(broker.partitions()))
        if world.strikes("garbage"):
            broker.append_garbage(chance.choice(broker.partitions()), "junk", "made by the simulation")

    def _compact(self, partition: Partition) -> None:
        """Tombstones go only below what every living reader has read: delete.retention.ms is longer than any pause."""
        world = self._world
        world.broker.compact(partition, before=self._chance.choice((None, world.broker.end_offset(partition) // 2)))
        read = [at for process in world.processes.values() for at in process.read_of(partition)]
        if self._chance.random() < 0.5:
            world.mark("tombstones cleaned away")
            world.broker.compact(partition, before=min(read, default=0), drop_tombstones=True)

    def _end_transaction(self, transaction: str) -> None:
        """The broker's time-out aborts it, or a commit that was thought lost arrives."""
        broker = self._world.broker
        if not broker.has_open(transaction):
            # It was for a producer that is fenced by now: the broker refuses it.
            self._world.mark("a delayed end of a transaction found another producer")
        else:
            if any(broker.last_stable_offset(p) < broker.end_offset(p) for p in broker.partitions()):
                self._world.mark("an open transaction held readers up")
            late = not self.stopped and self._chance.random() < 0.3
            self._world.mark("a late commit arrived" if late else "an open transaction timed out")
            broker.end_transaction(transaction, commit=late)
            if not late:
                broker.fence(transaction)

    def _later(self, what: str, whom: str) -> None:
        self._due.append((self._world.clock + self._chance.choice(MEND_SECONDS), what, whom))

    def _mend(self, now: float) -> None:
        world = self._world
        if self._open:
            due = [entry for entry in self._open if entry[0] <= now]
            self._open = [entry for entry in self._open if entry[0] > now]
            for _, transaction in due:
                self._end_transaction(transaction)
        if not self._due or min(self._due)[0] > now:
            return
        ready = sorted(entry for entry in self._due if entry[0] <= now)
        self._due = [entry for entry in self._due if entry[0] > now]
        for _, what, whom in ready:
            process = world.processes.get(whom)
            if what == "start":
                if all(other.name != whom for other in world.processes.values()):
                    world.start(whom)
            elif process is not None:
                process.log.heal()
                for partition in world.broker.partitions():
                    process.log.release(partition)

"""The kernel of a simulation: owners of a shard over a log in memory, a clock that only steps, effects, replay.

A simulation adds its domain: what effects do, who else writes records, which faults strike, and what must hold. The
kernel draws nothing and asks no clock, so a history is a function of what its simulation does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.records.base import Fact, Key, Record
from headgate.runtime.kind import OwnerKind
from headgate.runtime.machine import Machine, Now
from headgate.runtime.role import Role, RoleEndedError, TermEffect
from headgate.runtime.settings import RoleSettings
from headgate_lab.memory_log.log import MemoryBroker

StateT = TypeVar("StateT")

LEASE_SECONDS: Final = 5.0
"""Of owners and of those whom they watch, unless a simulation sets its own."""

START_SECONDS: Final = 100.0
"""What the clock shows at first: not 0, which could hide a time that was never set."""

POLL_RECORDS: Final = 10_000


class ReplayError(AssertionError):
    """The full log, the compacted log and a live state do not agree."""


def role_settings(
    kind: OwnerKind,
    owner_id: str,
    shard: int = 0,
    *,
    transactional_id: str | None = None,
    version: str = "test",
    schema_version: int = 1,
    lease_seconds: float = LEASE_SECONDS,
    holder_lease_seconds: float | None = None,
) -> RoleSettings:
    """The settings of one process's role. Every process that may own the shard has the same ``transactional_id``."""
    return RoleSettings(
        kind=kind,
        shard=shard,
        owner_id=owner_id,
        transactional_id=transactional_id or f"{kind.name}-{shard}",
        version=version,
        schema_version=schema_version,
        lease_seconds=lease_seconds,
        holder_lease_seconds=lease_seconds if holder_lease_seconds is None else holder_lease_seconds,
    )


def replayed(broker: MemoryBroker, machine: Machine[StateT], partitions: Iterable[Partition], shard: int = 0) -> StateT:
    """The state that a process has after it has read all committed records of these partitions."""
    state = machine.new_state(shard)
    reader = broker.client().reader(dict.fromkeys(partitions, 0))
    while batch := reader.poll(POLL_RECORDS, 0.0):
        for item in batch:
            if isinstance(item, Delivery):
                machine.evolve(state, item.key, item.value, item.offset)
    return state


class OwnerProcess(Generic[StateT]):
    """A process that may own a shard: its connection, its role, and the effects that have no result yet."""

    def __init__(
        self,
        settings: RoleSettings,
        machine: Machine[StateT],
        broker: MemoryBroker,
        submit: "Callable[[OwnerProcess[StateT], TermEffect], None] | None" = None,
        on_commit: "Callable[[OwnerProcess[StateT], Sequence[Fact]], None] | None" = None,
    ) -> None:
        """``submit`` receives each effect instead of ``effects``; ``on_commit`` sees every commit."""
        self.name = settings.owner_id
        self.log = broker.client()
        self.effects: list[TermEffect] = []
        self.role: Role[StateT] = Role(
            settings,
            machine,
            self.log,
            run_effect=self.effects.append if submit is None else lambda effect: submit(self, effect),
            on_commit=lambda facts: None if on_commit is None else on_commit(self, facts),
        )


class OwnerWorld(Generic[StateT]):
    """Processes that may own the only shard of a kind. The caller moves the clock (``now``, in seconds)."""

    def __init__(self, kind: OwnerKind, machine: Machine[StateT], **settings: Any) -> None:
        """``settings`` are those of ``role_settings``, the same for every process."""
        self.kind = kind
        self.machine = machine
        self.broker = MemoryBroker()
        self.now = START_SECONDS
        self.owners: dict[str, OwnerProcess[StateT]] = {}
        self._settings: Mapping[str, Any] = settings

    # --- what a simulation may override ---

    def wall_ms(self) -> int:
        """The wall clock, in milliseconds: unless overridden it shows what the monotonic clock shows."""
        return round(self.now * 1000)

    def machine_of(self, _name: str) -> Machine[StateT]:
        """The machine of a process; a simulation may wrap it to see its decisions."""
        return self.machine

    def submitted(self, owner: OwnerProcess[StateT], effect: TermEffect) -> None:
        """An owner asks for an effect. It waits in ``owner.effects`` unless overridden."""
        owner.effects.append(effect)

    def committed(self, _owner: OwnerProcess[StateT], _facts: Sequence[Fact]) -> None:
        """An owner has committed facts; the kernel ignores them."""

    # --- owners ---

    def start(self, name: str) -> OwnerProcess[StateT]:
        """Start a process. One of the same name that still runs is forgotten, not ended."""
        settings = role_settings(self.kind, name, **self._settings)
        process = OwnerProcess(settings, self.machine_of(name), self.broker, self.submitted, self.committed)
        self.owners[name] = process
        return process

    def kill(self, name: str) -> OwnerProcess[StateT]:
        """SIGKILL: the process answers no more, and its effects get no result."""
        process = self.owners.pop(name)
        process.role.close()
        return process

    def time(self) -> Now:
        """The time, as a role is given it."""
        return Now(self.now, self.wall_ms())

    def turn(self, name: str, turns: int = 1) -> bool:
        """Turn a process's role. False if the role has ended by itself: the process is killed."""
        try:
            for _ in range(turns):
                self.owners[name].role.turn(self.time())
        except RoleEndedError:
            self.kill(name)
            return False
        return True

    def take_effects(self) -> list[tuple[OwnerProcess[StateT], TermEffect]]:
        """The effects that wait, by the process's name and in their order. They wait no longer."""
        taken = [(owner, effect) for _, owner in sorted(self.owners.items()) for effect in owner.effects]
        for owner in self.owners.values():
            owner.effects.clear()
        return taken

    def answer_effects(self, result: Callable[[Any], Any]) -> None:
        """Answer every waiting effect with the ``result`` for it."""
        for owner, effect in self.take_effects():
            owner.role.finish(effect, result(effect.effect))

    def serving(self) -> OwnerProcess[StateT] | None:
        """The process of the newest term. One that was frozen may still take itself for the owner."""
        terms = [
            (owner.role.status.owner_rev, name)
            for name, owner in self.owners.items()
            if owner.role.status.owner_rev is not None
        ]
        return self.owners[max(terms)[1]] if terms else None

    # --- the log ---

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """What the role reads, by name."""
        return role_settings(self.kind, "-", **self._settings).partitions()

    def write(self, key: Key, value: Record | None) -> None:
        """Write one record as a client that is not an owner."""
        level = int(self._settings.get("schema_version", 1))
        self.broker.append(Placed(Partition(key.topic, 0), Fact(key, value)), level)

    def state(self) -> StateT:
        """The current state of the log."""
        return replayed(self.broker, self.machine, self.partitions)

    def check_replay(self, *, drop_tombstones: bool = False) -> StateT:
        """Compact the log and return its state. Raises ReplayError unless every way to it leads to the same state."""
        full = self.state()
        self.broker.compact_all(drop_tombstones=drop_tombstones)
        digest = self.machine.digest(full)
        if self.machine.digest(self.state()) != digest:
            raise ReplayError("replay of the compacted log does not give the state that the full log gives")
        for name, owner in sorted(self.owners.items()):
            if owner.role.status.owner_rev is not None and owner.role.digest() != digest:
                raise ReplayError(f"the live state of {name} differs from the log")
        return full

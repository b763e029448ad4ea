"""The owner service of a process: one role loop per shard, each on its own thread, and workers for effects.

Processes share the shards among themselves (roster.py); each announces itself by a heartbeat of its own.

Nothing is decided here. A thread turns its role for as long as the role lasts. Effects that the machine requests are
run by a few workers, because a sink that is slow to answer must not hold up a turn (nor a heartbeat). When the service
is asked to stop, every role resigns on the log, so that a standby takes over at once.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from headgate import SCHEMA_VERSION, __version__
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.collector import collect_rarely
from headgate.eventlog.log import Log, NewerSchemaError
from headgate.observability.logs import logger
from headgate.observability.probes import Probes
from headgate.records.base import Fact
from headgate.runtime.kind import OwnerKind
from headgate.runtime.machine import EffectFailed, Machine, Now, ResignOwner
from headgate.runtime.metrics import RoleMetrics
from headgate.runtime.presence import Presence
from headgate.runtime.role import Role, RoleEndedError, TermEffect
from headgate.runtime.settings import RoleSettings
from headgate.runtime.shared_pool import SharedPool
from headgate.supervision.threads import BackgroundThread

__all__ = [
    "SILENCE_SECONDS_MAX",
    "EffectRunner",
    "OwnerObserver",
    "OwnerService",
    "RoleCrashedError",
    "ServiceSettings",
]

StateT = TypeVar("StateT")

WORKERS: Final = 4
"""Effects are requests to brokers and sinks: they wait, they do not compute."""

PLACES: Final = 4
"""Times the workers: threads for effects that wait for something other than the running ones, one for each."""

EFFECTS_WAITING_MAX: Final = 1_000
"""Beyond this many the rest is answered "busy" at once and requested again by the machine."""

RESULT_RETRY_SECONDS: Final = 0.05
"""Pause before a result is offered again to a term that has too many waiting."""

STOP_POLL_SECONDS: Final = 0.1
"""How often the main thread checks whether it was asked to stop."""

SILENCE_SECONDS_MAX: Final = 60.0
"""Longest silence of a loop that is alive. A turn may wait for a broker: 10 s for an end, longer for a campaign."""


class EffectRunner(Protocol):
    """Runs one effect of a machine, to its end. Called from several threads."""

    def run(self, effect: Any) -> Any:
        """The result, of a type that the effect names, or EffectFailed.

        Any exception is a bug: it is logged and counted, and the effect ends with the result of ``crashed``.
        """
        ...


class OwnerObserver(Generic[StateT]):
    """Observes, for a kind's own metrics; this one does nothing. Both are called by the thread of the shard's role."""

    def committed(self, shard: int, facts: Sequence[Fact]) -> None:
        """Facts that are now on the log."""

    def stands(self, shard: int, state: StateT | None) -> None:
        """After each turn: the state of the owner; None while this process is not one."""


class RoleCrashedError(RuntimeError):
    """A role's thread ended with an unexpected error: a bug, its traceback is in the log."""


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``shards`` served here; ``cluster`` prefixes the roles' transactional ids; times in seconds."""

    cluster: str
    shards: tuple[int, ...]
    lease_seconds: float
    holder_lease_seconds: float
    shutdown_seconds: float
    owner_id: str = ""

    def role(self, kind: OwnerKind, shard: int) -> RoleSettings:
        """The settings of one shard's role: its transactional id is the same in every process."""
        return RoleSettings(
            kind=kind,
            shard=shard,
            owner_id=self.owner_id or f"{socket.gethostname()}-{os.getpid()}",
            transactional_id=f"{self.cluster}.{kind.name}-{shard}",
            version=__version__,
            schema_version=SCHEMA_VERSION,
            lease_seconds=self.lease_seconds,
            holder_lease_seconds=self.holder_lease_seconds,
        )


class OwnerService(Generic[StateT]):
    """All roles of one process. ``run`` returns when it was stopped; the end of a role ends the service."""

    def __init__(
        self,
        settings: ServiceSettings,
        kind: OwnerKind,
        machine: Machine[StateT],
        log: Log,
        effects: EffectRunner,
        *,
        tell: Callable[[int, Any, Any], None],
        probes: Probes,
        registry: CollectorRegistry,
        observer: OwnerObserver[StateT] | None = None,
        workers: int = WORKERS,
        waits_for: Callable[[Any], str] = lambda _effect: "",
        crashed: Callable[[Any, str], Any] = lambda _effect, reason: EffectFailed(reason),
    ) -> None:
        """``tell`` is called with (shard, effect, result) of each effect.

        ``workers``: effects that run at once. ``waits_for``: what an effect may have to wait for, such as a server.
        ``crashed``: the result of an effect that ended with an unexpected error, from its reason.
        Effects that wait for something else run beside those that wait for it.
        """
        self._waits_for = waits_for
        self._observer = observer or OwnerObserver[StateT]()
        self._settings = settings
        self._effects = effects
        self._kind = kind
        self._crashed = crashed
        self._tell = tell
        self._probes = probes
        self._metrics = RoleMetrics(registry)
        self._asked = False
        self._stop = threading.Event()
        self._changed = threading.Event()
        self._ended: dict[int, RoleEndedError | None] = {}
        self._work = SharedPool("effects", threads=PLACES * workers, usual=workers, each=workers, is_fatal=True)
        self._roles: dict[int, Role[StateT]] = {}
        for shard in sorted(settings.shards):
            role = Role(
                settings.role(kind, shard),
                machine,
                log,
                run_effect=self._submitter(shard),
                on_commit=partial(self._observer.committed, shard),
            )
            self._roles[shard] = role
            self._metrics.watch(shard, _status_of(role), role.counters)
            self._probes.expect(self._name(shard))
        self._presence = Presence(log, settings.role(kind, min(self._roles)), self._standing, wall_ms)

    @property
    def roles(self) -> Mapping[int, Role[StateT]]:
        """The roles by shard: ``status`` and ``counters`` may be read from any thread."""
        return self._roles

    def stop(self) -> None:
        """Resign every role and end; safe in a signal handler (which could deadlock on an Event), and when repeated."""
        self._asked = True

    def run(self) -> bool:
        """Serve until stopped. Return whether every role has resigned within ``shutdown_seconds``.

        Raises NewerSchemaError, RoleEndedError (a role cannot continue), RoleCrashedError (a bug).
        """
        collect_rarely()
        self._presence.beat()  # before any role can campaign, so that processes started together share from the start
        threads = [self._thread(self._drive, shard, f"role-{shard}") for shard in self._roles]
        threads.append(self._thread(self._be_present, 0, "presence"))
        while not self._asked and not self._changed.wait(STOP_POLL_SECONDS):
            pass
        clean = self._step_down(threads)
        self._raise_cause()
        return clean

    def _thread(self, target: Callable[[int], None], argument: int, name: str) -> BackgroundThread:
        thread = BackgroundThread(target, argument, name=name)
        thread.start()
        return thread

    def _step_down(self, threads: Sequence[BackgroundThread]) -> bool:
        self._stop.set()
        self._work.shutdown()
        deadline = time.monotonic() + self._settings.shutdown_seconds
        for role in self._roles.values():
            role.resign()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

    def _raise_cause(self) -> None:
        for shard, error in sorted(self._ended.items()):
            if error is None:
                raise RoleCrashedError(f"the role of shard {shard} has crashed; its traceback is in the log")
            if isinstance(error.__cause__, NewerSchemaError):
                raise NewerSchemaError(f"shard {shard}: {error}") from error
            if self._roles[shard].status.last_error != "resigned":
                raise error

    # --- roles ---

    def _drive(self, shard: int) -> None:
        """Turn one role until it ends."""
        role, name = self._roles[shard], self._name(shard)
        log = logger(service=self._kind.name, shard=shard)
        ended: RoleEndedError | None = None
        shown: tuple[Any, ...] = ()
        turn_seconds = self._metrics.turn_seconds.labels(shard=str(shard))
        try:
            while True:
                begun = time.monotonic()
                pause = role.turn(Now(begun, wall_ms()))
                turn_seconds.observe(time.monotonic() - begun)
                self._observer.stands(shard, role.view if role.status.owner_rev is not None else None)
                self._probes.turned(name)
                shown = self._show(role, name, shown, log)
                if not role.wait(pause):
                    self._stop.wait(pause)
        except RoleEndedError as error:
            ended = error
            log.info("role_ended", reason=str(error))
        finally:
            # Reached with ended = None only by a bug, which the supervisor logs and counts.
            self._probes.unready(name, "ended")
            role.close()
            self._ended[shard] = ended
            self._changed.set()

    def _show(self, role: Role[StateT], name: str, shown: tuple[Any, ...], log: Any) -> tuple[Any, ...]:
        """Keep readiness and the log in step with the role. Return what was shown, to notice a change."""
        status = role.status
        now = (status.state, status.owner_rev, status.owner_id, status.replayed, status.blind, status.last_error)
        if now == shown:
            return shown
        # An error is logged when it happens, not again with each step of the recovery.
        news = {"last_error": status.last_error} if status.last_error != (shown or (None,))[-1] else {}
        if status.blind is not None:
            news["blind"] = status.blind
        log.info(
            "role",
            state=status.state.value,
            owner_rev=status.owner_rev,
            owner=status.owner_id,
            replayed=status.replayed,
            **news,
        )
        if status.blind is not None:
            self._probes.unready(name, f"the control topics cannot be read: {status.blind}")
        elif status.replayed and status.owner_id is not None:
            self._probes.ready(name)
        else:
            self._probes.unready(name, status.last_error or f"{status.state.value}, replaying")
        return now

    # --- presence ---

    def _be_present(self, _number: int) -> None:
        """Announce this process until it must stop."""
        while not self._stop.wait(self._presence.pause):
            self._presence.beat()
        self._presence.leave()

    def _standing(self) -> list[int]:
        """Shards owned, or wanted; one whose thread hangs in a request is better left to others."""
        now, lease = time.monotonic(), self._settings.lease_seconds
        return [
            shard
            for shard, role in sorted(self._roles.items())
            if role.stands and now - (role.status.turned_at or now) < lease
        ]

    # --- effects ---

    def _submitter(self, shard: int) -> Callable[[TermEffect], None]:
        def submit(effect: TermEffect) -> None:
            if isinstance(effect.effect, ResignOwner):
                self._roles[shard].cede()  # takes effect at the next turn, when this one's facts are committed
                return
            if self._work.waiting < EFFECTS_WAITING_MAX:
                self._work.submit(self._waits_for(effect.effect), self._work_off, shard, effect)
            else:
                self._count(effect, "busy")
                self._finish(shard, effect, EffectFailed(f"the {self._kind.name} has too many effects waiting"))
            self._metrics.effects_waiting.set(self._work.waiting)

        return submit

    def _work_off(self, shard: int, effect: TermEffect) -> None:
        result = self._run(shard, effect.effect)
        self._count(effect, type(result).__name__)
        self._tell(shard, effect.effect, result)
        while not self._finish(shard, effect, result) and not self._stop.is_set():
            self._stop.wait(RESULT_RETRY_SECONDS)
        self._metrics.effects_waiting.set(self._work.waiting)

    def _run(self, shard: int, effect: Any) -> Any:
        try:
            return self._effects.run(effect)
        except Exception as error:  # noqa: BLE001 - what one effect meets, even a bug, must not end the owner of all
            kind = type(effect).__name__
            logger(service=self._kind.name, shard=shard).exception("effect_crashed", effect=kind)
            reason = f"unexpected {type(error).__name__}: {error}; this is a bug, see the owner's log"
            return self._crashed(effect, reason)

    def _finish(self, shard: int, effect: TermEffect, result: Any) -> bool:
        return self._roles[shard].finish(effect, result)

    def _name(self, shard: int) -> str:
        return f"{self._kind.name} {shard}"

    def _count(self, effect: TermEffect, result: str) -> None:
        self._metrics.effects.labels(kind=type(effect.effect).__name__, result=result).inc()


def _status_of(role: Role[Any]) -> Callable[[], Any]:
    return lambda: role.status

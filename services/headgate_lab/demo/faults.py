"""What the demo does to its services while all writers write, and how long the other services take to make up for it.

A take-over is measured from the signal to the record that proves it: for an agent, all its tables replicating under
other sessions; for the owner, another one announced and the first decision of its term. What the faults must not cause
is counted too: a session or a term lost that nothing was done to.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.audit import LABEL
from headgate_lab.demo.services import COORDINATORS, Services, sessions_lost
from headgate_lab.demo.tables import busiest_agent, holders
from headgate_lab.demo.watch import Chronicle, Watch, WatchError
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.parts.processes import Fate, ServiceError, ServiceProcess

TAKEOVER_SECONDS_MAX: Final = 300.0
"""Far beyond the goals: past this something does not work at all."""

FREEZE_LEASES: Final = 3.0
"""How long an agent stays frozen, in leases: past its own, and past that of the process that looks after it."""

FREEZE_SEARCH_SECONDS_MAX: Final = 3.0
"""All attempts together take less than a lease, and half of that time the service runs."""

FREEZE_LOOK_SECONDS: Final = 0.05

HEAD_START_SECONDS: Final = 1.0
"""How long the writers of a thawed agent run before the agent itself, whose lease would stop them."""

_IN_TRANSACTION: Final = "SELECT application_name FROM pg_stat_activity WHERE state = 'idle in transaction'"

AGENT_START_SECONDS_MAX: Final = 600.0
"""Three Spark sessions starting at once on two cores take half a minute; they are what a slow machine is slowest at."""

THAWED_SECONDS_MAX: Final = 120.0
"""For a thawed agent to find out that its lease is lost."""

Say = Callable[[str], None]


class FaultKind(StrEnum):
    """What the demo can do to a service, in the order in which it does it."""

    AGENT_KILLED = "agent_killed"
    AGENT_FROZEN = "agent_frozen"
    OWNER_KILLED = "owner_killed"


class Takeover(msgspec.Struct, frozen=True):
    """One fault made up for. ``goal`` is what was aimed at, in seconds as ``seconds``.

    ``tables`` are those it was about, ``begin`` and ``end`` seconds since 1970.
    """

    fault: str
    victim: str
    seconds: float
    goal: float
    detail: str
    tables: tuple[str, ...]
    begin: float
    end: float


class Faults:
    """Kills and freezes, one after the other; remembers which losses of sessions and terms it has caused."""

    def __init__(self, services: Services, watch: Watch, target_dsn: str, say: Say) -> None:
        self._services = services
        self._target_dsn = target_dsn
        self._watch = watch
        self._say = say
        self._caused_sessions: set[str] = set()
        self._explained_terms = 1

    def await_services(self, tell: Say) -> None:
        """Wait until every agent can be assigned tables, and an owner decides. Raises ServiceError, naming the cause.

        ``tell`` receives the progress of each service about once a second.

        Two coordinators that start at the same moment both find no owner and both campaign; the later one fences the
        earlier. That is how an owner is found, not how one is lost, so losses of terms count from here.
        """

        def check() -> None:
            self._services.check()
            with self._watch.condition:
                tell(self._standing(self._watch.seen))

        def owned(seen: Chronicle) -> bool:
            return bool(seen.terms)

        try:
            self._watch.wait_for("a coordinator becomes the owner", owned, TAKEOVER_SECONDS_MAX, check)
        except WatchError as error:
            service = self._services.running[COORDINATORS[0]]
            raise ServiceError(service.explain(f"owns nothing, nor does another: {error}")) from error
        for agent in self._services.agents:
            self._await_session(agent, check)
        with self._watch.condition:
            self._explained_terms = len(self._watch.seen.terms)

    def inflict(self, kind: FaultKind) -> Takeover:
        """Inflict one fault and wait until the others have made up for it. Raises WatchError, ServiceError."""
        match kind:
            case FaultKind.AGENT_KILLED:
                return self._kill_agent()
            case FaultKind.AGENT_FROZEN:
                return self._freeze_agent()
            case FaultKind.OWNER_KILLED:
                return self._kill_owner()

    def _kill_agent(self) -> Takeover:
        """SIGKILL the busiest agent with everything under it; afterwards start it again, as its supervisor would."""
        agent, moved = self._victim()
        self._say(f"SIGKILL {agent} (Spark's JVM and workers included), which runs {', '.join(sorted(moved))}")
        began = time.monotonic()
        self._services.running[agent].kill()
        takeover = self._await_others(FaultKind.AGENT_KILLED, agent, moved, began)
        self._services.start_agent(agent)
        self._await_session(agent)
        return takeover

    def _freeze_agent(self) -> Takeover:
        """SIGSTOP the busiest agent past every lease, SIGCONT it, and see its former life end. Raises WatchError."""
        agent, moved = self._victim()
        service = self._services.running[agent]
        lost_before = sessions_lost(self._services.address(agent))
        self._say(f"SIGSTOP {agent} in the middle of its work, which runs {', '.join(sorted(moved))}")
        began, held = self._freeze_with_locks(service, moved)
        if held:
            self._say(f"frozen inside a transaction: {agent} holds its locks on {', '.join(sorted(held))}")
        takeover = self._await_others(FaultKind.AGENT_FROZEN, agent, moved, began)
        self._pause_until(began + FREEZE_LEASES * self._services.lease_seconds)
        former = self._watch.seen.sessions[agent][-1]
        thawed = time.monotonic()
        self._say(
            f"SIGCONT {agent} after {thawed - began:.1f} s, its writers first: they continue as if no time had passed"
        )
        service.thaw(HEAD_START_SECONDS)
        woken = time.monotonic()
        over = self._await_end_of_session(service, lost_before or 0)
        self._say(f"{agent} ended its former session, and all its writers, {over - woken:.1f} s after it woke up")
        if service.exit_code is not None:
            self._services.start_agent(agent)
        else:
            service.fate = Fate.RUNNING

        def another(seen: Chronicle) -> bool:
            return seen.sessions[agent][-1] != former

        what = f"{agent} announces another session after {former}, which it lost while it was frozen"
        self._watch.wait_for(what, another, THAWED_SECONDS_MAX, self._services.check)
        with self._watch.condition:
            begun = self._watch.seen.announced_at[self._watch.seen.sessions[agent][-1]]
        ready = self._await_session(agent)
        self._say(
            f"{agent} announced another session {begun - woken:.1f} s after it woke up; its Spark was ready after "
            f"{ready - woken:.1f} s"
        )
        return takeover

    def _await_end_of_session(self, service: ServiceProcess, lost_before: int) -> float:
        """When the service itself counts one session more as lost (its writers are ended by then), or has ended."""
        address, deadline = self._services.address(service.name), time.monotonic() + scaled_seconds(THAWED_SECONDS_MAX)
        while service.exit_code is None:
            lost = sessions_lost(address)
            if lost is not None and lost > lost_before:
                break
            if time.monotonic() > deadline:
                raise ServiceError(service.explain("does not give up a session that it has lost"))
            time.sleep(FREEZE_LOOK_SECONDS)
        return time.monotonic()

    def _kill_owner(self) -> Takeover:
        """SIGKILL the coordinator that owns the feed; afterwards start it again. Raises WatchError, ServiceError."""
        with self._watch.condition:
            former = self._watch.seen.terms[-1]
        service = self._services.owner_process(former.owner_id)
        self._say(f"SIGKILL {service.name}, the owner (term {former.owner_rev})")
        self._explained_terms += 1
        began = time.monotonic()
        service.kill()

        def another_decides(seen: Chronicle) -> bool:
            newest = seen.terms[-1]
            return newest.owner_rev > former.owner_rev and newest.owner_rev in seen.decided_at

        self._watch.wait_for("another owner decides", another_decides, TAKEOVER_SECONDS_MAX, self._services.check)
        with self._watch.condition:
            term = self._watch.seen.terms[-1]
            seconds = max(self._watch.seen.decided_at[term.owner_rev], term.announced_at) - began
        successor = self._services.owner_process(term.owner_id)
        self._services.start_coordinator(service.name)
        detail = f"{successor.name} announced itself after {term.announced_at - began:.1f} s (term {term.owner_rev})"
        with self._watch.condition:
            tables = set(holders(self._watch.seen.snapshot))
        return self._told(
            FaultKind.OWNER_KILLED, service.name, began=began, seconds=seconds, detail=detail, tables=tables
        )

    def false_losses(self) -> list[str]:
        """Sessions and terms lost that nothing was done to, one line each. Ask before stopping the services."""
        with self._watch.condition:
            dead = {death.session: f"{death.agent}: {death.reason}" for death in self._watch.seen.deaths}
            for agent, sessions in self._watch.seen.sessions.items():
                for session in sessions[:-1]:
                    dead.setdefault(session, f"{agent} gave up its session by itself")
            terms = len(self._watch.seen.terms) - self._explained_terms
        lost = [f"session {s} of {why}" for s, why in sorted(dead.items()) if s not in self._caused_sessions]
        lost += [f"an owner's term ended {terms} times more often than owners were killed"] * max(0, terms)
        return lost + [f"{name} ended by itself" for name in self._services.ended_by_themselves()]

    def _freeze_with_locks(self, service: ServiceProcess, tables: set[str]) -> tuple[float, set[str]]:
        """Freeze a service, inside a sink transaction if a few attempts are enough; return when, and in which tables.

        That is the worst moment: what it has locked stays locked until another client ends its session.
        """
        with postgres_client(self._target_dsn) as target:
            deadline = time.monotonic() + FREEZE_SEARCH_SECONDS_MAX
            while time.monotonic() < deadline:
                began = time.monotonic()
                service.freeze()
                # What the server still executes for the frozen client ends in the meantime.
                time.sleep(FREEZE_LOOK_SECONDS)
                rows = target.execute(_IN_TRANSACTION).fetchall()
                held = {label.group("table") for row in rows if (label := LABEL.fullmatch(row[0]))} & tables
                if held:
                    return began, held
                service.thaw()
                time.sleep(FREEZE_LOOK_SECONDS)
        began = time.monotonic()
        service.freeze()
        return began, set()

    def _victim(self) -> tuple[str, set[str]]:
        with self._watch.condition:
            agent = busiest_agent(self._watch.seen.snapshot)
            if agent is None:
                raise WatchError("no table replicates, so no agent exists whose loss would show anything")
            roles = holders(self._watch.seen.snapshot)
            self._caused_sessions.add(self._watch.seen.sessions[agent][-1])
        return agent, {span for span, role in roles.items() if role.agent == agent}

    def _await_others(self, fault: str, agent: str, moved: set[str], began: float) -> Takeover:
        lost = self._watch.seen.sessions[agent][-1]

        def replicate_elsewhere(seen: Chronicle) -> bool:
            now = holders(seen.snapshot)
            return all(span in now and now[span].session != lost for span in moved)

        what = f"{', '.join(sorted(moved))} replicate elsewhere"
        at = self._watch.wait_for(what, replicate_elsewhere, TAKEOVER_SECONDS_MAX, self._services.check)
        with self._watch.condition:
            now = holders(self._watch.seen.snapshot)
        detail = ", ".join(f"{span} → {now[span].agent} (epoch {now[span].epoch})" for span in sorted(moved))
        return self._told(fault, agent, began=began, seconds=at - began, detail=detail, tables=moved)

    def _told(
        self, fault: str, victim: str, *, began: float, seconds: float, detail: str, tables: set[str]
    ) -> Takeover:
        begin = time.time() - (time.monotonic() - began)
        self._say(f"taken over after {seconds:.1f} s: {detail}")
        return Takeover(
            fault=fault,
            victim=victim,
            seconds=seconds,
            goal=self._services.lease_seconds + 2,
            detail=detail,
            tables=tuple(sorted(tables)),
            begin=begin,
            end=begin + seconds,
        )

    def _await_session(self, agent: str, check: Callable[[], None] | None = None) -> float:
        """When the agent could be given tables. Raises ServiceError, with the end of the agent's log."""

        def is_back(seen: Chronicle) -> bool:
            sessions = seen.sessions.get(agent, [])
            return bool(sessions) and sessions[-1] not in self._caused_sessions and seen.is_ready(agent)

        try:
            return self._watch.wait_for(
                f"{agent} has started", is_back, AGENT_START_SECONDS_MAX, check or self._services.check
            )
        except WatchError as error:
            with self._watch.condition:
                standing = self._standing(self._watch.seen)
            explained = self._services.running[agent].explain(f"does not get ready ({standing})")
            raise ServiceError(f"{error}. {explained}") from error

    def _standing(self, seen: Chronicle) -> str:
        """Who is how far, in one line."""
        words = []
        for agent in self._services.agents:
            announced = "starting" if seen.sessions.get(agent) else "not there yet"
            words.append(f"{agent} {'ready' if seen.is_ready(agent) else announced}")
        return ", ".join([*words, *([] if seen.terms else ["no owner yet"])])

    def _pause_until(self, moment: float) -> None:
        while time.monotonic() < moment:
            self._services.check()
            time.sleep(min(0.5, max(0.0, moment - time.monotonic())))

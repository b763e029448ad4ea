"""Scripts of the migration owner with golden traces: the real machine in the real role loop over the in-memory log.

A script is blocks of commands, a line ``----``, and what happened: inputs, facts, effects. The database is played by
the script: ``result m1 progressed ready`` answers the effect that is out about m1. Examinations answer themselves, as
an ALTER of the table that the submission names, unless the script holds them. ``a & b`` come at once.
At the end of every script the state after replay of the full log, after replay of the compacted one, and the owner's
live state must be the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.migration.core import effects as fx
from headgate.migration.core.kind import MIGRATION_KIND
from headgate.migration.core.machine import MigrationsState, decide, digest, evolve, new_state
from headgate.migration.core.spec import MigrationSpec, written
from headgate.records.base import Fact
from headgate.records.migration import (
    FEED,
    Artifact,
    MigrationKey,
    MigrationOutcomeKey,
    MigrationRecorded,
    MigrationRequested,
    MigrationRequestKey,
    MigrationRequestKind,
    MigrationStrategy,
)
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    Decision,
    EffectFinished,
    Machine,
    Now,
    SetTimer,
    TermBegan,
    TimerFired,
)
from headgate.runtime.role import Role, TermEffect
from headgate.runtime.settings import RoleSettings
from headgate_lab.memory_log.log import MemoryBroker

LEASE_SECONDS: Final = 5.0
TICK_SECONDS: Final = 0.5
TURNS_MAX: Final = 500
TOPIC: Final = Partition("migration", 0)


class Owner:
    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.log = world.broker.client()
        settings = RoleSettings(
            kind=MIGRATION_KIND,
            shard=0,
            owner_id=name,
            transactional_id="migration-0",
            version="test",
            schema_version=1,
            lease_seconds=LEASE_SECONDS,
            holder_lease_seconds=LEASE_SECONDS,
        )
        machine = Machine(new_state=new_state, evolve=evolve, decide=self._decide, digest=digest)
        self.role: Role[MigrationsState] = Role(settings, machine, self.log, run_effect=self._run_effect)

    def _decide(self, state: MigrationsState, given: Any, now: Now) -> Decision:
        decision = decide(state, given, now)
        lines = [f"  {describe_fact(fact)}" for fact in decision.facts]
        lines += [
            f"  * {describe_effect(effect)}"
            for effect in decision.effects
            if not isinstance(effect, SetTimer | CancelTimer)
        ]
        shown = describe_input(given)
        if shown is not None and not is_quiet(given, lines):
            self.world.output += [f"{self.name} < {shown}", *lines]
        return decision

    def _run_effect(self, effect: TermEffect) -> None:
        self.world.submitted(self, effect)


class World:
    """A log, processes of the owner, and a database that says what the script wants."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.now = 100.0
        self.owners: dict[str, Owner] = {}
        self.effects: dict[str, tuple[Owner, TermEffect]] = {}
        self.examinations: list[tuple[Owner, TermEffect]] = []
        self.is_examining = True
        self.is_watching = False
        self.verdict: Any = None
        self.output: list[str] = []
        self.requests = 0

    def run(self, line: str) -> None:
        for command in line.split(" & "):
            self.command(command)
        self.settle()

    def command(self, line: str) -> None:
        words = line.split()
        plain = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, f"do_{plain[0]}")(*plain[1:], **options)

    def settle(self) -> None:
        for _ in range(TURNS_MAX):
            before = self.seen()
            for _, owner in sorted(self.owners.items()):
                owner.role.turn(Now(self.now, round(self.now * 1000)))
            if self.is_examining:
                self.do_examine()
            if self.seen() == before:
                return
        raise AssertionError("the scenario does not come to rest")

    def seen(self) -> tuple[Any, ...]:
        ends = tuple(self.broker.end_offset(partition) for partition in self.broker.partitions())
        return ends, len(self.output), [owner.role.status.state for owner in self.owners.values()]

    def submitted(self, owner: Owner, effect: TermEffect) -> None:
        if isinstance(effect.effect, fx.ExamineMigration):
            self.examinations.append((owner, effect))
        elif self.is_watching and isinstance(effect.effect, fx.WatchMigration):
            record = effect.effect.record
            owner.role.finish(effect, fx.Progressed(record.stage, is_ready_to_complete=record.is_ready_to_complete,
                              artifacts=record.artifacts, rows_copied=record.rows_copied, note=record.note,
                              throttle_reason=record.throttle_reason))  # fmt: skip
        else:
            self.effects[effect.effect.migration] = (owner, effect)

    # --- owners and time ---

    def do_start(self, name: str) -> None:
        """``start o1``: a process that would own the shard."""
        self.owners[name] = Owner(self, name)

    def do_kill(self, name: str) -> None:
        """SIGKILL: its effects never come back."""
        owner = self.owners.pop(name)
        owner.role.close()
        self.effects = {m: (o, e) for m, (o, e) in self.effects.items() if o is not owner}
        self.examinations = [(o, e) for o, e in self.examinations if o is not owner]

    def do_advance(self, text: str) -> None:
        for _ in range(round(float(text.removesuffix("s")) / TICK_SECONDS)):
            self.now += TICK_SECONDS
            self.settle()

    def do_watch(self, word: str) -> None:
        """``watch on``: every look finds the same as before; the migration lives."""
        self.is_watching = word == "on"

    # --- requests ---

    def do_submit(self, migration: str, table: str, *flags: str, **options: str) -> None:
        """``submit m1 t1 [allow_concurrent …] [strategy=online] [context=c] [db=a] [do=ADD] [request=r7]``."""
        request = options.pop("request", None)
        self.ask("submit", migration, spec=written(spec_of(table, flags, options)), request=request)

    def do_submit_raw(self, migration: str, **options: str) -> None:
        self.ask("submit", migration, spec=options.get("spec"))

    def do_revert(self, migration: str, reverted: str) -> None:
        spec = MigrationSpec(
            statement=f"revert {reverted}", database="db", strategy=MigrationStrategy.ONLINE, reverts=reverted
        )
        self.ask("revert", migration, spec=written(spec))

    def do_request(self, kind: str, migration: str, *, ratio: str = "", expires: str = "") -> None:
        """``request cancel m1``; ``request throttle m1 ratio=0.5 expires=10``."""
        self.ask(
            kind,
            migration,
            ratio=float(ratio) if ratio else None,
            expires=float(expires) if expires else None,
        )

    def do_withdraw(self, request: str) -> None:
        """The operator has read the outcome, and deletes its request."""
        self.write(MigrationRequestKey(request), None)

    def ask(self, kind: str, migration: str, *, spec: str | None = None, ratio: float | None = None,
            expires: float | None = None, request: str | None = None) -> None:  # fmt: skip
        self.requests += 1
        record = MigrationRequested(
            kind=MigrationRequestKind(kind),
            migration=migration,
            spec=spec,
            throttle_ratio=ratio,
            expires_seconds=expires,
            requested_by="ann",
            requested_ms=round(self.now * 1000),
        )
        self.write(MigrationRequestKey(request or f"r{self.requests}"), record)

    def write(self, key: Any, value: Any) -> None:
        self.broker.append(Placed(TOPIC, Fact(key, value)))

    # --- the database ---

    def do_hold(self, _word: str = "examinations") -> None:
        self.is_examining = False

    def do_examine(self, verdict: str = "", *, reason: str = "") -> None:
        """``examine [refused|failed|nothing|immediate] [reason=]``: answer what is being examined, once."""
        waiting, self.examinations = self.examinations, []
        for owner, effect in waiting:
            spec = effect.effect.spec
            table = spec.statement.split()[2] if spec.reverts is None else effect.effect.reverted.table
            action = "revert" if spec.reverts else spec.statement.split()[0].lower()
            result: Any = fx.Examined(action, table, spec.database, is_immediate=verdict == "immediate" or
                                      action in ("create", "drop"), has_nothing_to_do=verdict == "nothing")  # fmt: skip
            if verdict == "refused":
                result = fx.ExamineRefused(reason.replace("_", " "))
            if verdict == "failed":
                result = fx.EffectFailed(reason.replace("_", " "))
            owner.role.finish(effect, result)

    def do_result(self, migration: str, kind: str, *flags: str, **options: str) -> None:
        """``result m1 progressed [ready] [dead] [stage=] [rows=] [left=shadow] [feed=] [begun=] | completed | …``."""
        owner, effect = self.effects.pop(migration)
        left = tuple(
            Artifact(kind, name)
            for kind, option in (("table", "left"), (FEED, "feed"))
            for name in options.get(option, "").split(",")
            if name
        )
        reason = options.get("reason", "because").replace("_", " ")
        results: dict[str, Any] = {
            "progressed": fx.Progressed(
                options.get("stage", "copying"),
                rows_copied=int(options.get("rows", "0")),
                table_rows=100,
                is_ready_to_complete="ready" in flags,
                is_live="dead" not in flags,
                throttle_reason=options.get("throttled", ""),
                artifacts=left,
            ),
            "completed": fx.Completed("", left),
            "refused": fx.Refused(reason),
            "seen": fx.ToolSeen(
                "dead" not in flags, int(options["rows"]) if "rows" in options else None, artifacts=left
            ),
            "broke": fx.Broke(reason, left),
            "not_there": fx.NotThere(),
            "cutover_failed": fx.CutOverFailed(reason),
            "stopped": fx.Stopped(left, way_back=(Artifact(FEED, options["begun"]),) if "begun" in options else ()),
            "cleaned": fx.CleanedUp(left),
            "failed": fx.EffectFailed(reason),
        }
        owner.role.finish(effect, results[kind])

    def do_report(self, migration: str, status: str, *, stage: str = "", rows: str = "", reason: str = "") -> None:
        """``report m1 running [stage=] [rows=]``: the tool of m1 says so to every process that owns."""
        report = fx.ToolReported(
            migration,
            fx.ToolStatus(status),
            stage,
            number(rows),
            is_ready_to_complete=stage == "ready",
            message=reason.replace("_", " "),
        )
        for _, owner in sorted(self.owners.items()):
            owner.role.give(report)

    # --- the end ---

    def check_replay(self) -> None:
        full, live = new_state(0), [owner.role for owner in self.owners.values() if owner.role.status.owner_rev]
        compacted = new_state(0)
        self.replay(full)
        self.broker.compact(TOPIC)
        self.replay(compacted)
        assert digest(full) == digest(compacted)
        for role in live:
            assert role.digest() == digest(full)

    def replay(self, state: MigrationsState) -> None:
        reader = self.broker.client().reader({TOPIC: 0})
        for item in reader.poll(100_000, 0.0):
            assert isinstance(item, Delivery)
            evolve(state, item.key, item.value, item.offset)


def number(text: str | None) -> int | None:
    return int(text) if text else None


def spec_of(table: str, flags: Sequence[str], options: dict[str, str]) -> MigrationSpec:
    known = dict.fromkeys(flags, True)
    more: dict[str, Any] = {
        name: float(options[name])
        for name in ("retain_artifacts_seconds", "force_cutover_after_seconds")
        if name in options
    }
    return MigrationSpec(
        statement=f"{options.get('verb', 'ALTER')} TABLE {table} {options.get('do', 'ADD')}",
        database=options.get("db", "db"),
        strategy=MigrationStrategy(options.get("strategy", "online")),
        context=options.get("context", ""),
        **known,
        **more,
    )


def play(path: Path) -> str:
    """The script with the trace that it gives now."""
    world, parts = World(), []

    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        commands = block.split("\n----")[0]
        world.output = []
        for line in commands.splitlines():
            if line.strip() and not line.startswith("#"):
                world.run(line)
        parts.append("\n".join([commands, "----", *world.output]))
    world.check_replay()
    return "\n\n".join(parts) + "\n"


# --- words ---


def is_quiet(given: Any, lines: Sequence[str]) -> bool:
    """Ticks without consequence, and looks that find nothing new, are every second."""
    match given:
        case TimerFired(name=name) if name.startswith("watch/"):
            return True
        case EffectFinished(effect=fx.WatchMigration(), result=fx.Progressed() | fx.ToolSeen()) | TimerFired():
            return not lines
        case _:
            return False


def describe_input(given: Any) -> str | None:
    match given:
        case TermBegan(owner_rev=rev):
            return f"enthroned, owner_rev {rev}"
        case Arrived(delivery=delivery) if isinstance(delivery.key, MigrationRequestKey):
            wish = delivery.value
            said = "deleted" if wish is None else f"{wish.kind} {wish.migration}"
            return f"{delivery.key.text()}: {said}"
        case TimerFired(name=name):
            return f"timer {name}"
        case fx.ToolReported():
            more = [word for word in (given.stage, given.message) if word]
            return f"report of {given.migration}: {' '.join([given.status, *more])}"
        case EffectFinished(effect=effect, result=result):
            about = getattr(effect, "migration", "")
            return f"{type(effect).__name__} {about}: {describe_result(result)}"
        case _:
            return None


def describe_result(result: Any) -> str:
    more = [name for name in ("is_ready_to_complete",) if getattr(result, name, False)]
    reason = getattr(result, "reason", "")
    return " ".join([type(result).__name__, *more, *([f"({reason})"] if reason else [])])


def describe_fact(fact: Fact) -> str:
    match fact.key, fact.value:
        case MigrationKey(), None:
            return f"{fact.key.text()}: deleted"
        case MigrationKey(), MigrationRecorded():
            return f"{fact.key.text()}: {describe_record(fact.value)}"
        case MigrationOutcomeKey(), None:
            return f"{fact.key.text()}: deleted"
        case _:
            return f"{fact.key.text()}: {fact.value.status}, {fact.value.reason}"


def describe_record(record: MigrationRecorded) -> str:
    words = [record.state.value, f"by {record.owner_rev}"]
    if record.ending is not None:
        words.append(f"ending {record.ending}")
    if record.attempt:
        words.append(f"attempt {record.attempt}")
    if record.stage:
        words.append(f"stage {record.stage}")
    flags = (
        "owner_failed", "has_nothing_to_do", "launch_postponed", "completion_postponed", "is_ready_to_complete",
        "cutover_forced",
    )  # fmt: skip
    words += [name for name in flags if getattr(record, name)]
    numbers = ("retries", "cutover_attempts", "rows_copied", "throttle_ratio", "throttle_reason")
    words += [f"{name} {getattr(record, name)}" for name in numbers if getattr(record, name)]
    if record.artifacts:
        words.append("artifacts " + " ".join(artifact.name for artifact in record.artifacts))
    if record.message:
        words.append(f'"{record.message}"')
    return ", ".join(words)


def describe_effect(effect: Any) -> str:
    name = type(effect).__name__
    match effect:
        case fx.StopMigration(is_forced=True):
            return f"{name} {effect.migration} by force"
        case fx.ExamineMigration():
            return f"{name} {effect.migration} for {effect.request}"
        case fx.CleanUpMigration(keeps_tables=True):
            return f"{name} {effect.migration}, its feed alone"
        case _:
            return f"{name} {effect.migration}"

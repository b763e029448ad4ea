"""Scripts of the migration owner: the script plays the database (scenarios/script.py says how).

``result m1 progressed ready`` answers the effect that is out about m1. Examinations answer themselves, as an ALTER of
the table that the submission names, unless the script holds them. ``a & b`` come at once.
"""

from collections.abc import Sequence
from typing import Any

from headgate.migration.core import effects as fx
from headgate.migration.core.kind import MIGRATION_KIND
from headgate.migration.core.machine import MIGRATIONS, MigrationsState
from headgate.migration.core.spec import MigrationSpec, written
from headgate.records.base import Fact
from headgate.records.migration import (
    FEED,
    Artifact,
    MigrationApprovalKey,
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
    EffectFailed,
    EffectFinished,
    SetTimer,
    TermBegan,
    TimerFired,
)
from headgate.runtime.role import TermEffect
from headgate_lab.worlds.kernel import OwnerProcess
from scenarios.script import Script


class World(Script[MigrationsState]):
    """The database says what the script wants; ``effects`` has the newest effect about each migration."""

    tick_seconds = 0.5

    def __init__(self) -> None:
        super().__init__(MIGRATION_KIND, MIGRATIONS)
        self.effects: dict[str, tuple[OwnerProcess[MigrationsState], TermEffect]] = {}
        self.is_examining = True
        self.is_watching = False
        self.requests = 0

    def trace(self, name: str, given: Any, decision: Decision) -> None:
        lines = [f"  {describe_fact(fact)}" for fact in decision.facts]
        lines += [
            f"  * {describe_effect(effect)}"
            for effect in decision.effects
            if not isinstance(effect, SetTimer | CancelTimer)
        ]
        shown = describe_input(given)
        if shown is not None and not is_quiet(given, lines):
            self.output += [f"{name} < {shown}", *lines]

    def others_act(self) -> None:
        if self.is_examining:
            self.do_examine()

    def submitted(self, owner: OwnerProcess[MigrationsState], effect: TermEffect) -> None:
        if isinstance(effect.effect, fx.ExamineMigration):
            super().submitted(owner, effect)
        elif self.is_watching and isinstance(effect.effect, fx.WatchMigration):
            record = effect.effect.record
            owner.role.finish(effect, fx.Progressed(record.stage, is_ready_to_complete=record.is_ready_to_complete,
                              artifacts=record.artifacts, rows_copied=record.rows_copied, note=record.note,
                              throttle_reason=record.throttle_reason))  # fmt: skip
        else:
            self.effects[effect.effect.migration] = (owner, effect)

    # --- owners ---

    def do_start(self, name: str) -> None:
        """``start o1``: a process that would own the shard."""
        self.start(name)

    def do_kill(self, name: str) -> None:
        """SIGKILL: its effects never come back."""
        owner = self.kill(name)
        self.effects = {m: (o, e) for m, (o, e) in self.effects.items() if o is not owner}

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

    def do_approve(self, migration: str, *, by: str = "bob", kind: str = "approve") -> None:
        """``approve m1 [by=ann@host]``: on the topic of approvals."""
        self.ask(kind, migration, by=by, key=MigrationApprovalKey)

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
            expires: float | None = None, request: str | None = None, by: str = "ann",
            key: type[MigrationRequestKey | MigrationApprovalKey] = MigrationRequestKey) -> None:  # fmt: skip
        self.requests += 1
        record = MigrationRequested(
            kind=MigrationRequestKind(kind),
            migration=migration,
            spec=spec,
            throttle_ratio=ratio,
            expires_seconds=expires,
            requested_by=by,
            requested_ms=round(self.now * 1000),
        )
        self.write(key(request or f"r{self.requests}"), record)

    # --- the database ---

    def do_hold(self, _word: str = "examinations") -> None:
        self.is_examining = False

    def do_examine(self, verdict: str = "", *, reason: str = "", table: str = "") -> None:
        """``examine [refused|failed|nothing|immediate] [reason=] [table=]``: answer what is being examined, once."""

        def examined(effect: fx.ExamineMigration) -> Any:
            if verdict == "refused":
                return fx.ExamineRefused(reason.replace("_", " "))
            if verdict == "failed":
                return EffectFailed(reason.replace("_", " "))
            spec = effect.spec
            if effect.is_known:
                return fx.Identified(server_of(spec.database))
            found = spec.statement.split()[2] if effect.reverted is None else effect.reverted.table
            action = "revert" if spec.reverts else spec.statement.split()[0].lower()
            return fx.Examined(action, table or found, server_of(spec.database), is_immediate=verdict == "immediate" or
                               action in ("create", "drop"), has_nothing_to_do=verdict == "nothing",
                               needs_approval=spec.database.startswith("guarded"))  # fmt: skip

        self.answer_effects(examined)

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
            "failed": EffectFailed(reason),
        }
        owner.role.finish(effect, results[kind])

    def do_report(
        self, migration: str, status: str, *, stage: str = "", rows: str = "", percent: str = "", reason: str = ""
    ) -> None:
        """``report m1 running [stage=] [rows=] [percent=]``: the tool of m1 reports to every process that owns."""
        report = fx.ToolReported(
            migration,
            fx.ToolStatus(status),
            stage,
            number(rows),
            progress_percent=float(percent) if percent else None,
            is_ready_to_complete=stage == "ready",
            message=reason.replace("_", " "),
        )
        for _, owner in sorted(self.owners.items()):
            owner.role.give(report)


def server_of(database: str) -> str:
    """The identity of the database that a connection is: ``localhost.s1`` and ``loopback.s1`` are one."""
    return database.rpartition(".")[2]


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
        case Arrived(delivery=delivery) if isinstance(delivery.key, MigrationRequestKey | MigrationApprovalKey):
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
    if record.approved_by:
        words.append(f"approved by {record.approved_by}")
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

"""Scripts of the coordinator: the script plays agents, operators and the outside world (script.py says how).

A trace shows every input that the machine was given, every fact that it decided and every effect that it asked for.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from headgate.agent.core.announcements import announced, answered
from headgate.coordinator.core.effects import (
    DiscoverTables,
    FeedForgotten,
    FeedRefused,
    FeedResolved,
    ForgetFeed,
    ResolveFeed,
    ResolveStart,
    StartResolved,
    TablesDiscovered,
)
from headgate.coordinator.core.feeds.explain import explain
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.coordinator.core.machine import COORDINATOR, State
from headgate.records.base import Fact
from headgate.records.control import (
    Assignment,
    Epoch,
    Liveness,
    OperationKind,
    OperationRequested,
    ReplicationState,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
    TaskReported,
    TaskState,
)
from headgate.records.keys import AgentKey, AnswerKey, ProgressKey, RequestKey, SpanKey, TaskKey
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.records.spans import parse_span, table_of
from headgate.runtime.machine import Decision, EffectFailed, Machine, ResignOwner
from headgate.runtime.role import TermEffect
from headgate_lab.worlds.kernel import OwnerProcess
from scenarios.derived import derived, indexed
from scenarios.script import Script
from scenarios.trace import describe_effect, describe_fact, describe_input, is_quiet

KINDS: Final = {
    "create": OperationKind.CREATE_FEED,
    "pause": OperationKind.PAUSE_FEED,
    "resume": OperationKind.RESUME_FEED,
    "update": OperationKind.UPDATE_FEED,
    "remove": OperationKind.REMOVE_FEED,
    "move": OperationKind.MOVE_TABLE,
    "split": OperationKind.SPLIT_TABLE,
    "merge": OperationKind.MERGE_TABLE,
    "pause_table": OperationKind.PAUSE_TABLE,
    "resume_table": OperationKind.RESUME_TABLE,
    "resync_table": OperationKind.RESYNC_TABLE,
    "optimize_table": OperationKind.OPTIMIZE_TABLE,
    "rebalance": OperationKind.REBALANCE_FEED,
    "drain": OperationKind.DRAIN_AGENT,
    "resign": OperationKind.RESIGN_OWNER,
}


class Agent:
    """What the script plays of an agent: its session, whether it lives, answers, and its last epoch per span."""

    def __init__(self, name: str, session: str, capacity: int, *, is_mute: bool) -> None:
        self.name, self.session, self.capacity, self.is_mute = name, session, capacity, is_mute
        self.is_alive = True
        self.liveness = Liveness.ALIVE
        self.heartbeat = 0
        self.load = 0.0
        self.lease: float | None = None
        self.beaten_at = 0.0
        self.answered: int | None = None
        self.epochs: dict[SpanKey, Epoch] = {}


class World(Script[State]):
    """A log, processes of the coordinator, agents, and a clock that only commands move."""

    nothing = ("nothing happens",)

    def __init__(self, machine: Machine[State] = COORDINATOR) -> None:
        super().__init__(COORDINATOR_KIND, machine)
        self.agents: dict[str, Agent] = {}
        self.lives: dict[str, int] = {}
        self.is_resolving = True
        self.forget_fails = False
        self.found: dict[str, TablesDiscovered] = {}
        self.facts: list[Sequence[Fact]] = []

    def say(self, *lines: str) -> None:
        self.output.extend(lines)

    def trace(self, name: str, given: Any, decision: Decision) -> None:
        lines = [f"  {describe_fact(fact)}" for fact in decision.facts]
        lines += [f"  {describe_effect(effect)}" for effect in decision.effects if not is_quiet(effect)]
        shown = describe_input(given)
        if (shown is not None and not is_quiet(given)) or lines:
            self.say(f"{name} < {shown or 'heartbeat'}", *lines)

    def submitted(self, owner: OwnerProcess[State], effect: TermEffect) -> None:
        if isinstance(effect.effect, ResignOwner):
            owner.role.cede()
        else:
            super().submitted(owner, effect)

    def committed(self, _owner: OwnerProcess[State], facts: Sequence[Fact]) -> None:
        self.facts.append(facts)

    def command(self, words: list[str], options: dict[str, str]) -> None:
        if words[0] in {"owner", "agent", "request", "effects"}:
            words = ["_".join(words[:2]), *words[2:]]
        super().command(words, options)

    def run(self, line: str) -> None:
        super().run(line)
        for _, owner in sorted(self.owners.items()):
            assert indexed(owner.role.view.index) == derived(owner.role.view), "an index is not what the records say"

    def ticked(self, step: int) -> None:
        """Heartbeats come every second, or as often as an agent's lease asks for them."""
        if step % 4 == 3:
            for _, agent in sorted(self.agents.items()):
                if agent.lease is None or self.now >= agent.beaten_at + agent.lease / 5:
                    self.beat(agent)

    def others_act(self) -> None:
        self.answer_owner()
        if self.is_resolving:
            self.do_effects_run()

    # --- owners ---

    def do_owner_start(self, name: str) -> None:
        self.start(name)

    def do_owner_kill(self, name: str) -> None:
        self.kill(name)

    def do_owner_switch(self, old: str, new: str) -> None:
        """The owner resigns and another takes over."""
        self.start(new)
        owner = self.owners.pop(old)
        owner.role.resign()
        owner.role.turn(self.time())

    def do_stale(self, target: str, agent: str, rev: str) -> None:
        """A record of an owner that is long over arrives at the log (which the broker's fencing keeps out)."""
        key = span_key(target)
        role = Assignment(agent, f"{agent}s1", Epoch(int(rev), 99))
        now = self.dispatched(key)
        record = replace(now, owner_rev=int(rev), state=ReplicationState.COMMIT, primary=role, secondary=None)
        self.write(key, record)
        states = [self.state(), *(owner.role.view for _, owner in sorted(self.owners.items()))]
        self.say(*(f"  state: {describe_fact(Fact(key, state.spans[key]))}" for state in states))
        self.write(key, now)

    # --- agents ---

    def do_agent_join(self, name: str, mute: str = "", capacity: str = "100", load: str = "0", lease: str = "") -> None:
        """``agent join a1 [mute] [capacity=] [load=] [lease=20]``: a lease is announced, with five heartbeats in it."""
        life = self.lives[name] = self.lives.get(name, 0) + 1
        agent = self.agents[name] = Agent(name, f"{name}s{life}", int(capacity), is_mute=bool(mute))
        agent.load = float(load)
        agent.lease = float(lease) if lease else None
        self.beat(agent)
        if not agent.is_mute:
            self.answer(agent, None)

    def do_agent_twin(self, name: str) -> None:
        """One more process under the name; the script calls it ``<name>*``, and the next one ``<name>**``."""
        life = self.lives[name] = self.lives.get(name, 0) + 1
        alias = f"{name}*"
        while alias in self.agents:
            alias += "*"
        agent = self.agents[alias] = Agent(name, f"{name}s{life}", 100, is_mute=False)
        self.beat(agent)
        self.answer(agent, None)

    def do_agent_leave(self, name: str) -> None:
        """A clean end: the session deletes its announcement."""
        agent = self.agents.pop(name)
        self.write(AgentKey(agent.name, agent.session), None)

    def do_kill(self, name: str) -> None:
        self.agents[name].is_alive = False

    def do_thaw(self, name: str) -> None:
        """A killed one was only frozen: it says that it is there, once; ``kill`` it again or it goes on."""
        self.agents[name].is_alive = True
        self.beat(self.agents[name])

    def do_stop(self, name: str) -> None:
        self.agents[name].liveness = Liveness.STOPPING
        self.beat(self.agents[name])

    def do_mute(self, name: str) -> None:
        """The agent lives but answers no announcement from now on."""
        self.agents[name].is_mute = True

    def do_answer(self, name: str, rev: str = "current") -> None:
        agent = self.agents[name]
        self.answer(agent, self.owner_rev() if rev == "current" else None if rev == "null" else int(rev))

    def beat(self, agent: Agent) -> None:
        if not agent.is_alive:
            return
        agent.heartbeat += 1
        agent.beaten_at = self.now
        record = announced(
            agent.liveness,
            agent.heartbeat,
            round(self.now * 1000),
            capacity_spans=agent.capacity,
            address="here",
            load_bytes_per_s=agent.load,
            lease_seconds=agent.lease,
            reads=1,
        )
        self.write(AgentKey(agent.name, agent.session), record)

    def answer(self, agent: Agent, rev: int | None) -> None:
        agent.answered = rev
        value = answered(rev, len(agent.epochs), round(self.now * 1000), reads=1)
        self.write(AnswerKey(agent.name, agent.session, 0), value)

    def answer_owner(self) -> None:
        rev = self.owner_rev()
        for _, agent in sorted(self.agents.items()):
            if rev is not None and agent.is_alive and not agent.is_mute and agent.answered != rev:
                self.answer(agent, rev)

    def do_status(self, name: str, target: str, state: str, **options: str) -> None:
        """``status a1 f/t1 replicating [epoch=] [feed=] [pos=] [error=code:text] [session=] [fatal=yes]``.

        ``maintained=<request>``, with ``unable=yes`` if that failed.
        """
        key, agent = span_key(target), self.agents[name]
        session = options.get("session", agent.session)
        report = TaskReported(
            feed_id=options["feed"] if "feed" in options else self.dispatched(key).feed_id,
            epoch=self.epoch(agent, key, options.get("epoch")),
            state=TaskState(state),
            positions=positions(options.get("pos")),
            error_code=options["error"].split(":")[0] if "error" in options else None,
            error=options["error"].split(":")[1] if "error" in options else None,
            retryable="error" in options and "fatal" not in options,
            reported_ms=round(self.now * 1000),
            maintained=options.get("maintained"),
            maintenance="why" if "unable" in options else "2 files before, 1 now" if "maintained" in options else None,
            maintenance_failed="unable" in options,
        )
        self.write(TaskKey(key.feed, key.span, agent.name, session), report)

    def do_obey(self) -> None:
        """Every live agent does what its roles ask of it, at offset 0, until nothing more is asked."""
        told: set[tuple[SpanKey, Epoch, str]] = set()
        while True:
            state = self.state()
            asked = [
                (agent, key, role, word)
                for key, record in sorted(state.spans.items())
                for role, word in asked_of(record)
                for name, agent in sorted(self.agents.items())
                if agent.is_alive and (agent.name, agent.session) == (role.agent, role.session)
                if (key, role.epoch, word) not in told
            ]
            if not asked:
                return
            agent, key, role, word = asked[0]
            told.add((key, role.epoch, word))
            name = next(name for name, other in self.agents.items() if other is agent)
            self.do_status(name, key.text(), word, epoch=str(role.epoch), pos="0")
            self.settle()

    def do_progress(self, name: str, target: str, **options: str) -> None:
        """``progress a1 f/t1 pos=5 [ts=] [resolved=] [rows=] [mb=] [lag=ms] [epoch=]``."""
        key, agent = span_key(target), self.agents[name]
        value = SpanProgressed(
            feed_id=self.dispatched(key).feed_id,
            epoch=self.epoch(agent, key, options.get("epoch")),
            positions=positions(options.get("pos")),
            seen_ts=int(options["ts"]) if "ts" in options else None,
            resolved_ts=int(options["resolved"]) if "resolved" in options else None,
            rows=int(options.get("rows", "0")),
            bytes=int(options.get("mb", "0")) * 1_000_000,
            lag_ms=int(options.get("lag", "0")),
            progressed_ms=round(self.now * 1000),
        )
        self.write(ProgressKey(key.feed, key.span, agent.name, agent.session), value)

    def epoch(self, agent: Agent, key: SpanKey, text: str | None) -> Epoch:
        """The epoch asked for; else that of the session's role; else the last one it had."""
        if text is not None:
            rev, n = text.split(".")
            return Epoch(int(rev), int(n))
        record = self.dispatched(key)
        for role in (record.secondary, record.primary):
            if role is not None and (role.agent, role.session) == (agent.name, agent.session):
                agent.epochs[key] = role.epoch
        return agent.epochs[key]

    # --- operators and the world outside ---

    def do_request_create(
        self,
        request: str,
        feed: str,
        together: str = "",
        *,
        tables: str = "t1",
        dsn: str = "target",
        target: str = "",
        spread: str = "auto",
        log: str = "",
        copies: str = "",
    ) -> None:
        """``request create r1 f [together] [tables=] [dsn=] [target=] [spread=manual]``: together in one topic.

        ``log``: of the change log that the feed reads. ``copies``: tables whose rows are copied first.
        """
        more = f'"target": {target}, ' if target else ""
        if spread != "auto":
            more += f'"spread": "{spread}", '
        if together:
            more += '"source": {"tables": ["any"]}, '
        if log:
            more += f'"source": {{"change_log": "{log}"}}, '
        if copies:
            more += f'"copies": "{copies}", '
        spec = f'{{{more}"tables": "{tables}", "sink": {{"type": "postgresql", "dsn": "{dsn}"}}}}'
        self.ask(request, "create", feed, spec=spec)

    def do_request_pause(self, request: str, feed: str) -> None:
        self.ask(request, "pause", feed)

    def do_request_update(
        self, request: str, feed: str, bare: str = "", tables: str = "t1", dsn: str = "target"
    ) -> None:
        """``request update u1 f [bare] [tables=] [dsn=]``: bare without a spec."""
        spec = f'{{"tables": "{tables}", "sink": {{"type": "postgresql", "dsn": "{dsn}"}}}}'
        self.ask(request, "update", feed, spec=None if bare else spec)

    def do_request_resume(self, request: str, feed: str, start: str = "") -> None:
        """``request resume p1 f [start=7]``: from offset 7 of every partition."""
        self.ask(request, "resume", feed, spec=start or None)

    def do_request_remove(self, request: str, feed: str, abandon: str = "") -> None:
        """``request remove x1 f [abandon]``: without its sink."""
        self.ask(request, "remove", feed, abandon_sink=bool(abandon))

    def do_request_move(self, request: str, feed: str, table: str, agent: str) -> None:
        self.ask(request, "move", feed, table=table, agent=agent)

    def do_request_split(self, request: str, feed: str, table: str, parts: str = "") -> None:
        """``request split p1 f t1 parts=2``; without parts: as the load asks."""
        self.ask(request, "split", feed, table=table, parts=int(parts) if parts else None)

    def do_request_merge(self, request: str, feed: str, table: str) -> None:
        self.ask(request, "merge", feed, table=table)

    def do_request_pause_table(self, request: str, feed: str, table: str) -> None:
        self.ask(request, "pause_table", feed, table=table)

    def do_request_resume_table(self, request: str, feed: str, table: str) -> None:
        self.ask(request, "resume_table", feed, table=table)

    def do_request_optimize_table(self, request: str, feed: str, table: str) -> None:
        self.ask(request, "optimize_table", feed, table=table)

    def do_request_resync_table(self, request: str, feed: str, table: str, rows: str = "one") -> None:
        """``request resync_table c1 f t1 [whole|bad]``: of one row or all; bad without naming any."""
        spec = {"one": '{"columns": ["id"], "keys": [["1"]]}', "whole": '{"keys": null}', "bad": "{}"}[rows]
        self.ask(request, "resync_table", feed, spec=spec, table=table)

    def do_request_rebalance(self, request: str, feed: str = "") -> None:
        """``request rebalance b1 [f]``: without a feed every one that runs."""
        self.ask(request, "rebalance", feed)

    def do_request_drain(self, request: str, agent: str) -> None:
        self.ask(request, "drain", "", agent=agent)

    def do_request_resign(self, request: str) -> None:
        self.ask(request, "resign", "")

    def do_request_delete(self, request: str) -> None:
        self.write(RequestKey(request), None)

    def ask(
        self,
        request: str,
        kind: str,
        feed: str,
        *,
        spec: str | None = None,
        table: str | None = None,
        agent: str | None = None,
        parts: int | None = None,
        abandon_sink: bool = False,
    ) -> None:
        asked_ms = round(self.now * 1000)
        value = OperationRequested(KINDS[kind], feed, spec, table, agent, "tester", asked_ms, parts, abandon_sink)
        self.write(RequestKey(request), value)

    def do_effects_hold(self) -> None:
        """Effects wait until ``effects run``, ``effects fail`` or ``effects refuse``."""
        self.is_resolving = False

    def do_effects_run(self) -> None:
        self.answer_effects(
            lambda effect: (
                self.found.get(effect.feed, TablesDiscovered())
                if isinstance(effect, DiscoverTables)
                else run_effect(effect)
            )
        )

    def do_found(  # noqa: PLR0917 - words of a script
        self, feed: str, tables: str = "", notices: str = "", grown: str = "", waits: str = "", added: str = ""
    ) -> None:
        """What every look at a source finds.

        ``found f [tables=t2,t3:4] [notices=] [grown=] [waits=t1:5000] [added=t1~4-5]``.
        """
        plans = planned(tables) if tables else ()
        said = tuple(text.replace("_", " ") for text in notices.split(",") if text)
        unapplied = {text.partition(":")[0]: int(text.partition(":")[2]) for text in waits.split(",") if text}
        found = TablesDiscovered(plans, said, grown.replace("_", " ") or None, unapplied)
        if added:
            table, partitions = table_of(added), parse_span(added).partitions or ()
            part = SpanPlan(added, f"db.{table}", table, dict.fromkeys(partitions, 0))
            found = replace(found, added=part)
        self.found[feed] = found

    def do_effects_fail(self) -> None:
        self.answer_effects(lambda _effect: EffectFailed("broker away"))

    def do_effects_refuse(self) -> None:
        self.answer_effects(lambda _effect: FeedRefused("no such topic"))

    # --- looking ---

    def do_why(self, feed: str) -> None:
        """From a replayed state, as the CLI does it."""
        state = self.state()
        told = explain(state, feed, has_owner=bool(self.owners))
        self.say(f"{told.feed}: {told.state}, ts {told.checkpoint_ts}, {told.held_count} of {told.table_count} held")
        self.say(*(f"  {line}" for line in told.feed_held_by))
        self.say(*(f"  {r.span}: {r.stage} on {r.agent}: {r.detail}" for r in told.reasons))

    def do_show(self) -> None:
        """Every dispatch record, outcome and feed on the log."""
        state = self.state()
        self.say(*(f"  {describe_fact(Fact(key, value))}" for key, value in sorted(state.spans.items())))

    def do_compact(self) -> None:
        self.broker.compact_all(drop_tombstones=True)

    def check(self) -> None:
        for state in (self.check_replay(drop_tombstones=True), self.state()):
            assert indexed(state.index) == derived(state), "an index is not what the records say"

    # --- the log ---

    def dispatched(self, key: SpanKey) -> SpanDispatched:
        return self.state().spans[key]

    def owner_rev(self) -> int | None:
        revs = [owner.role.status.owner_rev for _, owner in sorted(self.owners.items())]
        return next((rev for rev in revs if rev is not None), None)


def asked_of(record: SpanDispatched) -> list[tuple[Assignment, str]]:
    """What a span's record asks of its role holders, as the word that says that it is done."""
    primary, secondary = record.primary, record.secondary
    if record.state is ReplicationState.PREPARE and secondary is not None:
        return [(secondary, "prepared")]
    if record.state not in (ReplicationState.COMMIT, ReplicationState.REMOVING) or primary is None:
        return []
    is_last = record.state is ReplicationState.REMOVING or secondary is not None
    return [(primary, "stopped" if is_last else "replicating")]


def run_effect(effect: ResolveFeed | ResolveStart | ForgetFeed) -> FeedResolved | StartResolved | FeedForgotten:
    """What the world outside answers when nothing is wrong."""
    match effect:
        case ResolveFeed():
            return resolved(effect)
        case ResolveStart(start=start, spans=spans):
            return StartResolved(tuple(replace(plan, start=dict.fromkeys(plan.start, int(start))) for plan in spans))
        case ForgetFeed():
            return FeedForgotten()


def resolved(effect: ResolveFeed) -> FeedResolved:
    """Tables as the script's spec names them, ``t1`` or ``t1:4`` with four partitions that start at offset 0."""
    tables = effect.spec.split('"tables": "')[1].split('"')[0]
    target = effect.spec.partition('"target": ')[2].partition(",")[0]
    copied = effect.spec.partition('"copies": "')[2].partition('"')[0]
    plans = planned(tables) if tables else ()
    return FeedResolved(
        effect.spec,
        plans,
        int(target) if target else None,
        note="" if plans else "no topic matches",
        copies=dict.fromkeys(filter(None, copied.split(",")), shown_row_copy(RowCopy(keys=None))),
    )


def planned(tables: str) -> tuple[SpanPlan, ...]:
    named = [(table.partition(":")[0], int(table.partition(":")[2] or 1)) for table in tables.split(",")]
    return tuple(SpanPlan(table, f"db.{table}", table, dict.fromkeys(range(count), 0)) for table, count in named)


def span_key(text: str) -> SpanKey:
    feed, span = text.split("/")
    return SpanKey(feed, span)


def positions(text: str | None) -> dict[int, int]:
    """``5`` of partition 0, or ``0:5,3:7``."""
    pairs = [part.rpartition(":") for part in (text or "").split(",") if part]
    return {int(partition or 0): int(offset) for partition, _, offset in pairs}

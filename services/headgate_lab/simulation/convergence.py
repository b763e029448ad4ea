"""Guarantee 2: what is missing until every desired state is reached; nothing once the simulation converged."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.agent.core.executor import SpanId
from headgate.coordinator.core.machine import State
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OperationKind,
    ReplicationState,
    SpanPlan,
    TaskState,
    WantedState,
    is_unsettled,
)
from headgate.records.keys import SpanKey
from headgate.records.spans import paused_table
from headgate_lab.simulation.agents import AgentProcess

if TYPE_CHECKING:
    from headgate_lab.simulation.world import World


def what_is_missing(world: "World") -> list[str]:
    """Every desired state that is not reached, and every trace that should be gone."""
    missing: list[str] = []
    agents = {
        (process.session.key.agent, process.session.key.session): process
        for process in world.processes.values()
        if isinstance(process, AgentProcess) and process.session is not None
    }
    for _, state in sorted(world.log_audit.states.items()):
        for name, placed in sorted(state.requests.items()):
            outcome, feed_of_it = state.outcomes.get(name), state.feeds.get(placed.request.feed)
            is_copy = placed.request.kind is OperationKind.RESYNC_TABLE
            if is_copy and feed_of_it is not None and feed_of_it.wanted is WantedState.STOPPED:
                continue  # its rows are copied when the feed is resumed
            if is_unsettled(outcome):
                missing.append(f"{name} {placed.request.kind} {placed.request.feed} has {outcome}")
        for name, feed in sorted(state.feeds.items()):
            missing += _missing_of_feed(world, state, name, feed, agents)
        missing += [
            f"{key.text()} is left of a feed that is gone" for key in state.spans if key.feed not in state.feeds
        ]
        missing += [f"outcome of {name}, which is gone" for name in state.outcomes if name not in state.requests]
    return missing + world.upgrades.missing()


def _missing_of_feed(
    world: "World",
    state: State,
    name: str,
    feed: FeedRecorded,
    agents: dict[tuple[str, str], AgentProcess],
) -> list[str]:
    if feed.wanted is WantedState.REMOVED:
        return [f"feed {name} is still there, {feed.state}"]
    if feed.wanted is WantedState.STOPPED:
        still = [plan.span for plan in feed.spans if world.sink_audit.is_open(feed.feed_id, plan.table)]
        return [] if feed.state is FeedState.STOPPED and not still else [f"feed {name} is {feed.state}, open {still}"]
    if feed.wanted is WantedState.FINISHED:
        return _missing_of_finished(world, name, feed)
    if feed.target_ts is not None:
        return [f"feed {name} has the target {feed.target_ts} and is wanted {feed.wanted}"]
    missing = [] if feed.state is FeedState.NORMAL else [f"feed {name} is {feed.state}"]
    # What another feed writes is left out, with a notice (coordinator/core/feeds/discovery.py).
    taken = {plan.table for other, held in state.feeds.items() if other != name for plan in held.spans}
    unseen = world.operator.unseen(name, feed.spec, feed.spans)
    missing += [f"{table} has not joined {name}" for table in unseen if table not in taken]
    for plan in feed.spans:
        paused = paused_table(feed, plan.span)
        missing += (
            _missing_of_paused(world, feed, plan)
            if paused is not None and paused.copy is None
            else _missing_of_span(world, state, SpanKey(name, plan.span), plan, agents)
        )
    planned = {plan.span for plan in feed.spans}
    missing += [f"{key.text()} is left of a table divided otherwise" for key in _unplanned(state.spans, name, planned)]
    for key in _unplanned(state.tasks, name, planned):
        missing += [f"a word of {session} about {key.text()}" for session in state.tasks[key] if state.is_live(session)]
    return missing


def _missing_of_span(
    world: "World", state: State, key: SpanKey, plan: SpanPlan, agents: dict[tuple[str, str], AgentProcess]
) -> list[str]:
    record = state.spans.get(key)
    if record is None or record.state is not ReplicationState.REPLICATING or record.primary is None:
        return [f"{key.text()} is {record}"]
    process = agents.get((record.primary.agent, record.primary.session))
    if process is None or process.session is None:
        return [f"{key.text()} is on {record.primary}, which is not there"]
    missing = []
    status = process.session.executor.status(SpanId(key.feed, plan.span))
    if status is None or status.state is not TaskState.REPLICATING or status.epoch != record.primary.epoch:
        missing.append(f"{key.text()} runs as {status}")
    said = state.feed_progress.get(key.feed)
    ends = {partition: max(world.source_end(plan.topic, partition), at) for partition, at in plan.start.items()}
    written = world.sink_audit.applied_to.get((state.feeds[key.feed].feed_id, plan.table), {})
    reached = {} if said is None else said.positions.get(plan.table, {})
    if not ends.items() <= written.items():
        missing.append(f"{key.text()} is written to {written} of {ends}")
    elif not ends.items() <= reached.items():
        missing.append(f"the checkpoint of {key.text()} is {reached}, not {ends}")
    return missing


def _missing_of_paused(world: "World", feed: FeedRecorded, plan: SpanPlan) -> list[str]:
    return [f"{plan.span} is paused, but open"] if world.sink_audit.is_open(feed.feed_id, plan.table) else []


def _missing_of_finished(world: "World", name: str, feed: FeedRecorded) -> list[str]:
    missing = [] if feed.state is FeedState.FINISHED else [f"feed {name} is {feed.state}, not finished"]
    still = [plan.table for plan in feed.spans if world.sink_audit.is_open(feed.feed_id, plan.table)]
    return missing + [f"{table} of the finished feed {name} is open" for table in still]


def _unplanned(keys: Iterable[SpanKey], feed: str, planned: set[str]) -> list[SpanKey]:
    return [key for key in keys if key.feed == feed and key.span not in planned]

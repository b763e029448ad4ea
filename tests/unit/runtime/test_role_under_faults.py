"""Three processes, two agents and a log under random faults: the guarantees that the loop alone must keep.

Each seed is one history: frozen and cut processes, lost answers, refused commits, transactions left open, broker
fencing, lag, compaction. Then the faults stop, and everything must settle.
"""

import random

import pytest

from headgate.eventlog.log import Partition, Placed
from headgate.records.base import Fact
from headgate.records.control import OperationKind
from headgate.records.keys import OutcomeKey, SessionKey
from headgate.runtime.role import RoleState
from headgate_lab.memory_log.log import CommitFault
from support.toy_role import AGENT_LEASE, LEASE, Member, World, transactional_id

STEPS = 300
SEEDS = 40
KINDS = (OperationKind.PAUSE_FEED, OperationKind.CREATE_FEED, OperationKind.RESUME_FEED)


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.world = World()
        self.members = [self.world.member(name) for name in ("one", "two", "three")]
        self.frozen: dict[str, float] = {}
        self.requests = 0

    def step(self) -> None:
        world, chance = self.world, self.random
        world.clock += chance.choice((0.05, 0.25, 0.5))
        if chance.random() < 0.2:
            self.requests += 1
            world.request(f"r{self.requests:03}", chance.choice(KINDS))
        for agent in ("a1", "a2"):
            if chance.random() < 0.3:
                world.beat(agent)
        for number, member in enumerate(self.members):
            self.fault(str(number), member)
            if self.frozen.get(str(number), 0.0) <= world.clock:
                self.turn(member)

    def fault(self, name: str, member: Member) -> None:
        world, chance = self.world, self.random
        draw = chance.random()
        if draw < 0.006:
            self.frozen[name] = world.clock + chance.uniform(0.5, 4 * LEASE)
        elif draw < 0.012:
            member.log.cut()
        elif draw < 0.05:
            member.log.heal()
        elif draw < 0.06:
            world.broker.fail_commit(transactional_id(), chance.choice(list(CommitFault)))
        elif draw < 0.063:
            world.broker.fence(transactional_id())
            junk = Fact(OutcomeKey("never"), None)
            world.broker.leave_open(transactional_id(), [Placed(Partition("changefeed", 0), junk)])
        elif draw < 0.07:
            member.log.hold(chance.choice(world.broker.partitions()))
        elif draw < 0.12:
            for partition in world.broker.partitions():
                member.log.release(partition)
        elif draw < 0.13:
            world.broker.compact(chance.choice(world.broker.partitions()))

    def turn(self, member: Member) -> None:
        member.turn()
        for submitted in member.effects:
            assert submitted.owner_rev == max(self.terms()), "an effect of a lost term was run"
            member.role.finish(submitted, "found")
        member.effects.clear()

    def terms(self) -> list[int]:
        """The owner_rev of every announcement on the log, in its order."""
        announced = self.world.announced()
        return [offset if record.owner_rev is None else record.owner_rev for offset, record in announced]

    def ended_sessions(self) -> set[str]:
        reader = self.world.broker.client().reader({Partition("dispatch", 0): 0})
        return {each.key.agent for each in reader.poll(1000, 0.0) if isinstance(each.key, SessionKey)}

    def settle(self) -> None:
        self.world.broker.cancel_faults()
        for member in self.members:
            member.log.heal()
            for partition in self.world.broker.partitions():
                member.log.release(partition)
        until = self.world.clock + 6 * LEASE + AGENT_LEASE
        while self.world.clock < until:
            self.world.clock += 0.25
            self.world.beat("a1")
            for member in self.members:
                self.turn(member)
        for member in self.members:
            self.turn(member)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_one_owner_serves_in_the_end_and_all_agree_with_the_log(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    assert history.ended_sessions() == set(), "a session that never fell silent was taken for dead"
    history.settle()
    assert history.ended_sessions() == {"a2"}

    serving = [member for member in history.members if member.state is RoleState.SERVING]
    assert len(serving) == 1
    (owner,) = serving
    assert sorted(owner.outcomes) == [f"r{number + 1:03}" for number in range(history.requests)]

    digests = {member.role.digest() for member in history.members}
    full = history.world.replayed_digest()
    history.world.broker.compact_all()
    assert digests == {full} == {history.world.replayed_digest()}

    terms = history.terms()
    assert terms == sorted(terms), "a stale owner's announcement stands behind a newer one"


def test_the_faults_above_really_happen() -> None:
    falls = campaigns = 0
    for seed in range(10):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
        falls += sum(member.role.counters.falls for member in history.members)
        campaigns += sum(member.role.counters.campaigns for member in history.members)
    assert falls > 30
    assert campaigns > 20

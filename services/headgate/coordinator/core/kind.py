"""The coordinator as a kind of owner: its topics, its keys, and the heartbeats of agents' sessions."""

from typing import Final

from headgate.records.base import Key, Record
from headgate.records.control import SESSION_LEFT, AgentAnnounced, SessionEnded
from headgate.records.keys import AgentKey, FeedProgressKey, MemberKey, OutcomeKey, OwnerKey, SessionKey
from headgate.runtime.kind import OwnerKind, Sign, SignOfLife


def sign_of_session(key: Key, value: Record | None) -> SignOfLife | None:
    """What a record shows about an agent's session, named (agent, session)."""
    if isinstance(key, AgentKey):
        holder = (key.agent, key.session)
        if value is None:
            return SignOfLife(holder, Sign.LEFT)
        return SignOfLife(holder, Sign.HEARD, value.lease_seconds if isinstance(value, AgentAnnounced) else None)
    if isinstance(key, SessionKey):
        holder = (key.agent, key.session)
        if value is None:
            return SignOfLife(holder, Sign.FORGOTTEN)
        farewell = isinstance(value, SessionEnded) and value.reason.startswith(SESSION_LEFT)
        return SignOfLife(holder, Sign.ENDED, farewell=farewell)
    return None


COORDINATOR_KIND: Final = OwnerKind(
    name="coordinator",
    topics=("changefeed", "checkpoint", "dispatch", "sync"),
    owner_key=OwnerKey,
    member_key=MemberKey,
    harmless={
        "announce": MemberKey("-"),
        "changefeed": OutcomeKey("-"),
        "checkpoint": FeedProgressKey("-"),
        "dispatch": SessionKey("-", "-"),
    },
    sign=sign_of_session,
)

"""Distinguishes a sink that has fallen silent from one that is slow.

A cut network is found out by TCP: keepalive where nothing is on its way, the user time-out where something is. A server
that is frozen, or a proxy that has stopped forwarding, still acknowledges every packet; and it is not known how long an
honest statement takes: one that waits for an index to be built may take hours. So nothing is given up for being slow. A
process that has waited for ``SILENCE_SECONDS`` opens a second session and asks what the first one is doing: if it gets
no answer, or the first one is doing nothing, what is waited for will never come, unless it has come while this was
asked.
"""

import socket
from typing import Final

CONNECT_SECONDS: Final = 10
"""A sink that does not answer is unavailable; the lane's back-off, not this, decides when to try again."""

SILENCE_SECONDS: Final = 30
"""Without a byte from the sink, or one taken by it, before it is asked. Six leases: others wait for the same lane."""

LAST_LOOK_SECONDS: Final = 1
"""For an answer that was sent while the sink was asked."""

KEEPALIVE_IDLE_SECONDS: Final = 10
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_COUNT: Final = 3
UNACKNOWLEDGED_MS: Final = 30_000

TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE_SECONDS,
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_SECONDS,
    "TCP_KEEPCNT": KEEPALIVE_COUNT,
    "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MS,
}
"""After 25 to 30 seconds a connection that was cut without notice is given up; the kernel's own limits are hours. Short
enough for the lane, long enough for a switch that restarts."""


def keep_alive(connection: socket.socket) -> None:
    """Set TCP's limits, as far as this system has them."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

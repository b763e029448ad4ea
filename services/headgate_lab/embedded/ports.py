"""TCP ports of the loopback interface for servers that are started for the occasion.

Ports are taken below the range from which operating systems number outgoing connections: a port found free there is
not snatched by some client's connection before our server has bound it.
"""

import random
import socket

from headgate.provisioning.errors import EmbeddedError, PortTakenError

HOST = "127.0.0.1"
# Linux numbers outgoing connections from 32768 on, macOS from 49152 on.
_PORTS = range(20_000, 32_001)
# Not the seeded generator: two runs with one seed, side by side, would draw the same ports.
_DICE = random.SystemRandom()
# With half of the range taken, a run of this many misses has a chance of one in a million.
_TRIES_PER_PORT = 20


def free_ports(count: int, among: range = _PORTS) -> list[int]:
    """``count`` different ports that were free a moment ago. Raises EmbeddedError when none is found."""
    found: list[int] = []
    for _ in range(_TRIES_PER_PORT * count):
        port = _DICE.choice(among)
        if port not in found and _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise EmbeddedError(f"no {count} free ports on {HOST} between {among[0]} and {among[-1]}: stop what holds them")


def require_free(port: int, purpose: str) -> None:
    """Raise PortTakenError if a process listens on ``port``; ``purpose`` describes its use for the message."""
    if not _is_free(port):
        raise PortTakenError(
            f"port {port} on {HOST}, wanted for {purpose}, is in use: stop the process that listens there "
            f"(`ss -ltnp 'sport = :{port}'` names the process), or choose another port"
        )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a predecessor that are still winding down do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True

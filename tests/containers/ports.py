"""The ports of this machine that compose publishes for these tests: free ones, so that nothing else is in their way."""

from typing import Final

from headgate_lab.embedded.ports import HOST, free_ports

VARIABLES: Final = ("KAFKA_PORT", "KAFKA_2_PORT", "KAFKA_3_PORT", "SOURCE_PORT", "TARGET_PORT", "VIEWS_PORT")
"""By which the compose files let others be chosen."""

AMONG: Final = range(10_000, 20_000)
"""Of which no server beside us draws one: between one file's `down` and the next one's `up` nobody holds these."""

PORTS: Final = dict(zip(VARIABLES, free_ports(len(VARIABLES), AMONG), strict=True))

BROKER: Final = f"{HOST}:{PORTS['KAFKA_PORT']}"
ALL_BROKERS: Final = ",".join(f"{HOST}:{PORTS[name]}" for name in VARIABLES if name.startswith("KAFKA"))
"""Of which there may be only the first (docker-compose.brokers.yml has all three)."""

"""How a service shows itself: structured logs, /livez, /readyz, /metrics."""

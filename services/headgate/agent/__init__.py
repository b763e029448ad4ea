"""Agents run spans: a pure machine, a session with its lease, and the Spark lanes that move the rows."""

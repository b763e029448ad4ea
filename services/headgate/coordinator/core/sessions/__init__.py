"""Sessions of agents: membership, the barrier at the start of a term, and agents that join."""

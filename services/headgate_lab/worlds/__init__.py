"""Owners of shards over a log in memory: the kernel of every simulation and scenario."""

"""Kafka's semantics in memory, as far as the role loop relies on them: for tests, benchmarks and the simulation."""

"""Deterministic simulation: the real machines and loops in a world of faults that a seed decides."""

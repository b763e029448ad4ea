"""Figures, never tests: each bench compares its sides interleaved in one run and prints what it measured."""

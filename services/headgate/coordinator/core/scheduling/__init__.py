"""Rounds of scheduling: what schedulers are shown, and how their proposals begin."""

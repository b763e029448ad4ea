"""Strategies that run a program of others: ``pt_osc`` and ``gh_ost``, with what they have in common in ``tool``."""

"""Generations: from when on which range of tokens goes to which stream of a change log."""

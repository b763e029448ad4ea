"""The owner as a machine: the rule for each input."""

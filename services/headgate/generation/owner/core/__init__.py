"""The owner as a machine: which rule of which room answers which input."""

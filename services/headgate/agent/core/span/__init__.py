"""The life of a span in an agent, as a pure machine: transitions.py has the table, machine.py is where to begin."""

"""The life of a span in an agent, as a pure machine: states.py, inputs.py, transitions.py (the table), machine.py."""

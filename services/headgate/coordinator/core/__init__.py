"""The coordinator's decisions, pure: replication.py has every transition of a span, machine.py the rule per input."""

"""Real processes on real parts under real faults, drawn from a seed; at the end everything must be as it should be."""

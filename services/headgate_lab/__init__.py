"""What surrounds Headgate and is not in its images: embedded parts, demo, benchmarks, chaos, simulation."""

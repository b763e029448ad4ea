"""Schema changes for tests and chaos: a statement for each clause that Headgate knows, a load, and a comparison."""

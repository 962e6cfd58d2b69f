"""The Trace, its readers and its writers."""

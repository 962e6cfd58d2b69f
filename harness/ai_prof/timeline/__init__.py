"""Pure functions from a Trace to its figures."""

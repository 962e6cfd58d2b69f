"""Pure functions from runs to a verdict."""

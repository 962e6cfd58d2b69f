"""Stored runs, by machine."""

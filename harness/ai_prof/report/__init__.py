"""A verdict for people and for machines."""

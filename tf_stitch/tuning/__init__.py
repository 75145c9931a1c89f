"""Races: each kernel against the nodes that it replaces, on this machine; the winner stays."""

"""How a graph is made: one file for each kind of source. What they have in common is in `edges.py`."""

"""How bytes travel between processes: segments, slots, the layout of a batch in a slot, and the one pickler."""

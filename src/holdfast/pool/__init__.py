"""A pool of processes with the interface of the standard library's, in which a dead worker costs one call."""

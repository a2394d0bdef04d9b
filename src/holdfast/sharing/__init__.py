"""share(): one copy of the data for all processes, in a segment that never changes."""

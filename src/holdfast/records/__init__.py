"""The record of a run on disk: append-only JSON lines that outlive every process of the run."""

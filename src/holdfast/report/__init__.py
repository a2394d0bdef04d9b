"""The record of a run, told: the model (pure), then as HTML, as text, as JSON, and live in a terminal."""

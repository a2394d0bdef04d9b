"""Each module alone: small facts, and hypothesis where the cases are too many to list."""

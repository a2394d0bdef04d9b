"""The loader: what the user sees, and every decision about data."""

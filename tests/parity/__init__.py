"""One scenario, two loaders, equal outcome: torch's DataLoader is the oracle."""

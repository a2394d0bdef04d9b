"""What `holdfast bench` does: torch's loader and ours over the user's dataset, side by side.

    match ──orders──► opponent (a child process for each loader: it may hang, or die) ──► play ──► the loader
      ▲                  │
      └──── answers ─────┘        results: rounds, medians, ratios (pure)
                                  digest: whether batches are equal

Both loaders run in processes that differ in nothing but the loader. Nothing here prints.
"""

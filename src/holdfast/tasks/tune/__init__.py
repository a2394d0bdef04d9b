"""What `holdfast tune` does: measures a dataset's samples, then loaders with more and more workers, and proposes.

    facts        what is measured, as plain data
    footprint    how large a sample is, and what its process has
    watched      the dataset, with each sample timed and weighed in its worker
    guarded      loaders to measure with, which end in time whatever a sample does
    sampling     samples, one at a time, in one guarded worker
    curve        batches per second with 1, 2, 4, ... workers
    rates        which numbers of workers, and arrivals of batches as a rate (pure)
    proposal     from all that: the arguments, each with its reason (pure)
    notes        what else there is to know of how it was measured (pure)
    sizing       numbers as people write them (pure)
    session      one call, from the dataset to the outcome

Nothing here prints: the figures are data, and the `cli` package shows them.
"""

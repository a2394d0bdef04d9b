"""What `holdfast demo` runs: an epoch with bad samples under both loaders, then the same work at full speed.

    faults     the samples that fail, and the dataset that holds them
    outcomes   what came of an epoch, and whether all of it is accounted for (pure)
    stock      torch's epoch, in a process of its own that may hang or die
    ours       our epoch, in this process
    speed      both loaders side by side: equal batches, and how fast they come

Nothing here prints: the figures are data, and the `cli` package shows them.
"""

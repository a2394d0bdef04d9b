"""What `holdfast replay` does: one sample of one incident again, alone.

    case       what a record says of an incident, and what is to be loaded again (pure)
    watched    the dataset in the worker: what a sample is made of, its seconds and its memory
    parts      what a sample is made of (pure)
    guarded    the sample in one guarded worker, under the limits of the run
    alone      the sample in this very process, under the same limits: for a debugger
    debuggers  pdb at the exception, gdb at the signal

Nothing here prints, but what a debugger says to its user.
"""

"""`holdfast run`: a script nobody changed, with torch's DataLoader replaced by ours wherever it is made.

    holdfast run train.py ──► cli/run.py        options checked, before anything runs
                                 │
                              starting.py       exec: this process becomes `python train.py`, with two things in its
                                 │              environment: a directory on PYTHONPATH, and what was asked for
                              startup/sitecustomize.py     Python imports it before the script
                                 │
                              hook.py           waits for the script to import torch, then puts
                              replacement.py    this class in the place of torch's
                              summary.py        prints at exit what became of it

Why exec, and not a script run inside our own process: `__main__`, tracebacks, signals, exit status, pickling and
`multiprocessing` are then Python's own, and not an imitation. Why the environment: Python processes that the script
starts inherit it, whether by spawn, forkserver, `torchrun` or Lightning's launcher, and get the same loader.
"""

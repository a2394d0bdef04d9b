"""`spawn()`: a function in several processes at once, as `torch.multiprocessing.spawn` runs it."""

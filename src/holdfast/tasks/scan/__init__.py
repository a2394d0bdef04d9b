"""`holdfast scan`: every sample of a dataset loaded once, in guarded workers, and what was found.

    worker: dataset ──► measured (signature, bytes, seconds) ──► main: findings ──► progress file
                                                                       └──► majority ──► which samples are odd
No sample travels: a worker reduces each to its signature. Of holdfast only public names are used.
"""

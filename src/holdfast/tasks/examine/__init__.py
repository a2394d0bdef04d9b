"""A dataset as `holdfast doctor MODULE:DATASET` looks at it: made, pickled and sampled in a process that may die.

    main: examination ──make, pickle, take──► a worker: in_worker, taking ──► seen ──► checks (pure)

Its worker is a new interpreter: what was open or running before the dataset was made is known, and nothing of it is the
user's. One that crashes or hangs is diagnosed like any other, and the examination goes on with a new one.
"""

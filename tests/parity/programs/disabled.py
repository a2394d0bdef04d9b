"""A script with three iterators, for HOLDFAST_DISABLE=1. Prints their class, the batches and the warnings, as JSON."""

from __future__ import annotations

import json
import warnings

from holdfast import DataLoader

if __name__ == "__main__":
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        loader: DataLoader[int] = DataLoader(range(6), batch_size=2, num_workers=2, backend=None)
        kinds = [type(iterator).__name__ for iterator in (iter(loader), iter(loader))]
        batches = [batch.tolist() for batch in loader]
    mentioned = [[warning.category.__name__, str(warning.message), warning.filename] for warning in recorded]
    print(json.dumps({"iterators": kinds, "batches": batches, "warnings": mentioned}))

"""A user's script without `if __name__ == "__main__":`, which a new interpreter therefore runs again.

Usage: no_main_guard.py spawn | forkserver | portable
Runs in: a child of the test process, and the processes it starts.
"""

from __future__ import annotations

import sys

from helpers import Numbers
from holdfast import DataLoader, HoldfastError

method = sys.argv[1]
how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
loader = DataLoader(Numbers(8), num_workers=2, **how)
try:
    list(loader)
except HoldfastError as error:
    print(type(error).__name__, loader.incidents[-1].cause, error.incident.confidence, error, sep="\n")
loader.close()

"""The environment variables of others that the checks look at: of notebooks, clusters, containers, thread libraries.

Read here and nowhere else in this package. Runs in: main process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def variables(names: Iterable[str]) -> dict[str, str]:
    """Those that are set, also to nothing."""
    return {name: os.environ[name] for name in names if name in os.environ}

"""An epoch whose processes never come so far: each stays in the import of this script, which it says.

Usage: interrupted_start.py spawn | portable
Runs in: a child of the test process.
"""

from __future__ import annotations

import sys
from typing import Any

from helpers import Numbers, say, stay
from holdfast import DataLoader

if __name__ != "__main__":
    say("importing")
    stay("asleep")


def main(method: str) -> None:
    how: dict[str, Any] = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    for _ in DataLoader(Numbers(8), num_workers=2, **how):
        pass


if __name__ == "__main__":
    main(sys.argv[1])

"""What the families of the payload zoo have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Maker = Callable[[int], Any]
"""`maker(k)` makes the k-th variant of a payload: same kind and shape, other values."""

"""What the pools are asked to do. It imports torch, as a user's module would.

Runs in: workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def square(number: int) -> int:
    """As little as a call can do."""
    return number * number


def double(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As much as came."""
    return array * 2


def torch_version(_: int) -> str:
    """Something that needs torch."""
    return str(torch.__version__)

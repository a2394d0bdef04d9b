"""The arguments `device` and `prefetch_to_device`, checked without asking for any device.

Runs in: main process.
"""

from __future__ import annotations

import torch


def parse_device(device: object) -> torch.device | None:
    """What the user named. Whether it is there is looked at when batches are first asked for."""
    if device is None or isinstance(device, torch.device):
        return device
    try:
        if isinstance(device, bool):
            raise TypeError("a device is no flag")
        return _device_of(device)
    except (RuntimeError, TypeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(
            f'device={device!r} must be a device as torch knows it, such as "cuda", or None: {said}'
        ) from None


def _device_of(device: object) -> torch.device:
    try:
        return torch.device(device)  # type: ignore[call-overload, no-any-return]
    except RuntimeError:
        if not isinstance(device, int):
            raise
        return torch.device("cuda", device)  # torch knows a number by the accelerator that is there, and none is


def check_ahead(prefetch_to_device: object) -> int:
    if not isinstance(prefetch_to_device, int) or isinstance(prefetch_to_device, bool) or prefetch_to_device < 1:
        raise ValueError(f"prefetch_to_device={prefetch_to_device!r} must be a whole number of batches, 1 or more")
    return prefetch_to_device

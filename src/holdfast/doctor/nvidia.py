"""What the kernel shows of NVIDIA's driver and devices, without asking the driver. `root` is for recorded trees.

Runs in: main process.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.doctor import kernel_files

_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
_DEVICE = re.compile(r"^nvidia\d+$")


def driver_version(root: Path) -> str | None:
    """ "550.54.15"; None: it is not loaded."""
    match = _VERSION.search(kernel_files.text(root / "proc/driver/nvidia/version") or "")
    return match[1] if match else None


def device_nodes(root: Path) -> tuple[str, ...]:
    """ "/dev/nvidia0", as this container has them."""
    try:
        names = sorted(path.name for path in (root / "dev").iterdir() if _DEVICE.match(path.name))
    except OSError:
        return ()
    return tuple(f"/dev/{name}" for name in names)


def models(root: Path) -> tuple[str, ...]:
    """As the driver calls each device."""
    found = []
    for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        for line in (kernel_files.text(path) or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                found.append(value.strip())
    return tuple(found)

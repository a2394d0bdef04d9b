"""torch as another process finds it: whether it can be imported here at all, and what it says of itself.

In a process of its own, so that a torch that crashes ends that one. What is installed is known without it.
Runs in: main process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import metadata

from holdfast.diagnosis.wording import one_line, signal_name

LIMIT_S = 60.0
_LAST_LINES = 6
_PROGRAM = """
import json, warnings
import torch
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    cuda = torch.cuda.is_available()
    devices = torch.cuda.device_count() if cuda else 0
print(json.dumps({
    "version": str(torch.__version__), "cuda_built": torch.version.cuda, "cuda_works": cuda, "devices": devices,
    "said": [str(one.message) for one in said],
}))
"""


@dataclass(frozen=True, slots=True)
class TorchProbe:
    installed: str | None
    """The version that is installed; None: none is."""
    works: bool = False
    why_not: str = ""
    """In a line."""
    last_words: tuple[str, ...] = ()
    import_s: float = 0.0
    cuda_built: str | None = None
    """The version of CUDA that it was built for; None: it was built for CPUs, or for other devices."""
    cuda_works: bool = False
    devices: int = 0
    said: tuple[str, ...] = ()
    """What torch warned of when it was asked for devices."""


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def probe(program: str = _PROGRAM, limit_s: float = LIMIT_S) -> TorchProbe:
    """Import it in a new interpreter. `program` is for tests."""
    installed = installed_version("torch")
    if installed is None:
        return TorchProbe(None, why_not="torch is not installed")
    began = time.monotonic()
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return TorchProbe(installed, why_not=f"importing it had not ended after {limit_s:g} s")
    took = time.monotonic() - began
    last_words = tuple(one_line(line, 160) for line in done.stderr.splitlines() if line.strip())[-_LAST_LINES:]
    if done.returncode:
        return TorchProbe(installed, why_not=_why(done.returncode, last_words), last_words=last_words)
    try:
        said = json.loads(done.stdout.splitlines()[-1])
        return TorchProbe(
            installed,
            works=True,
            import_s=took,
            cuda_built=said["cuda_built"],
            cuda_works=said["cuda_works"],
            devices=said["devices"],
            said=tuple(one_line(line) for line in said["said"]),
        )
    except (ValueError, LookupError, TypeError):
        return TorchProbe(installed, why_not="what is imported as torch is not torch", last_words=last_words)


def _why(status: int, last_words: tuple[str, ...]) -> str:
    if status < 0:
        return f"importing it ended the process with {signal_name(-status)}"
    return last_words[-1] if last_words else f"importing it ended the process with status {status}"

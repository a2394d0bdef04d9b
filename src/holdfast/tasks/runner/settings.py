"""What `holdfast run` was told, as it travels to the script and to every Python that the script starts.

Standard library only. Runs in: the command; the script's process, and those it starts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

from holdfast import options


@dataclass(frozen=True, slots=True)
class Settings:
    """One `holdfast run`."""

    program: str
    """The script, or the module, as the user named it."""
    loader_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of `holdfast.DataLoader`, for what the script does not itself pass. JSON can say all of them."""
    is_quiet: bool = False
    json_file: str | None = None
    """Where the summary goes as data."""
    launch: str = field(default_factory=lambda: os.urandom(8).hex())
    pid: int = field(default_factory=os.getpid)
    """Of the script: exec keeps the pid. What else has these settings was started by it."""
    began: float = field(default_factory=time.time)

    @property
    def is_of_this_process(self) -> bool:
        """Whether this is the script's process, which sums up, and none that it started."""
        return self.pid == os.getpid()

    def to_environment(self) -> dict[str, str]:
        return {options.RUN: json.dumps(dataclasses.asdict(self)), options.LAUNCH: self.launch}


def from_environment() -> Settings | None:
    """None: this Python was not started by `holdfast run`, nor by what that started."""
    said = options.run_settings()
    return None if said is None else Settings(**json.loads(said))

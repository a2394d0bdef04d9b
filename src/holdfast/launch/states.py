"""How ranks have ended, and which of them was the first to fail. Pure.

When one rank of a group dies, the others fail of it: their connections to it close, and what they wait for never comes.
And the kernel is slow to say that a large process is gone, so that its peers may have raised before that is known.
So an exception that says that a peer has gone is taken for a consequence, wherever there is another failure.

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class End(Enum):
    """How a rank has ended, as far as it matters for what is done next."""

    NONE = "is running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "was interrupted"
    ENDED = "was ended with the group"


@dataclass(frozen=True, slots=True)
class RankState:
    """What is known of one rank. `words` go on from "rank 1": "raised ValueError: bad header"."""

    rank: int
    pid: int | None = None
    end: End = End.NONE
    words: str = "was running"
    at: float = 0.0  # when it failed: time.time()
    is_consequence: bool = False
    stderr_tail: str = ""

    @property
    def has_failed(self) -> bool:
        return self.end is End.FAILED


_OF_A_PEER = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|closed by peer|by (remote )?peer|connectfullmesh"
    r"|end of file|socket timeout|remote process exited",
    re.IGNORECASE,
)
_PEER_ERRORS = ("BrokenPipeError", "ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "EOFError")
_DISTRIBUTED_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError")


def is_about_a_peer(kind: str, message: str) -> bool:
    """Whether an exception, by the name of its class and what it says, means that another process has gone."""
    name = kind.rpartition(".")[2]
    return name in _PEER_ERRORS or name in _DISTRIBUTED_ERRORS or _OF_A_PEER.search(message) is not None


def first_to_fail(states: Iterable[RankState]) -> RankState | None:
    """The one that the others failed of."""
    failed = [state for state in states if state.has_failed]
    return min(failed, key=lambda state: (state.is_consequence, state.at), default=None)

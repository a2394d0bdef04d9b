"""Uses the portable backend where nothing that only Linux (or only POSIX) has can be found, as on other platforms.

Usage: portable_epoch.py import | epoch
import: as far as possible; the package's modules are imported. epoch: what Python's own spawn needs is left.
Workers import this script too: there it hides the same.
Runs in: a child of the test process, and its workers.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

import psutil  # noqa: F401  (these know their platform: they are imported while it is what it is)
import torch

from helpers import Numbers, numbers, say

HIDDEN = (
    (os, ("fork", "forkpty", "register_at_fork", "pidfd_open", "memfd_create", "eventfd")),
    (select, ("poll",)),
    (signal, ("pidfd_send_signal", "SIGRTMAX")),
    (socket, ("send_fds", "recv_fds", "CMSG_SPACE", "CMSG_LEN", "SCM_RIGHTS")),
)
for module, names in HIDDEN:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
if "import" in sys.argv:
    delattr(socket, "AF_UNIX")
    for name in ("SIGKILL", "SIGHUP"):
        delattr(signal, name)
    sys.modules["fcntl"] = None  # type: ignore[assignment]
    sys.modules["resource"] = None  # type: ignore[assignment]
sys.platform = "elsewhere"


def main() -> None:
    from holdfast import DataLoader
    from holdfast.workers import backends

    assert backends.find("portable").__name__ == "PortableCrew"  # type: ignore[attr-defined]
    unix_only = {"linux", "supervisor", "launching", "channel", "taint"}
    loaded = {name.rsplit(".", 1)[-1] for name in sys.modules if name.startswith("holdfast.workers.")}
    if "epoch" in sys.argv:
        with DataLoader(Numbers(40), batch_size=4, num_workers=2, backend="portable") as loader:
            assert torch.equal(torch.cat(list(loader)), numbers(0, 40, 4))
    assert not loaded & unix_only, loaded & unix_only
    say("done")


if __name__ == "__main__":
    main()

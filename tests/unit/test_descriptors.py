"""Who holds the descriptors of a process: in words, and when there is none left to ask with."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from holdfast.diagnosis import descriptors
from waits import PATIENCE_S

TARGETS = [
    *(f"/data/train/{k}.jpg" for k in range(700)),
    *(f"/data/index/{k}.db" for k in range(12)),
    *(f"socket:[{k}]" for k in range(150)),
    "pipe:[7]",
    "/memfd:holdfast (deleted)",
    "/dev/shm/holdfast-1-2",
    "/dev/shm/torch_77 (deleted)",
    "anon_inode:[eventpoll]",
    "/dev/null",
]


def test_they_are_grouped_by_kind_the_most_first() -> None:
    said = "712 files, of which 700 in /data/train; 150 sockets; 2 of holdfast; 1 pipes; 1 shared memory"
    assert descriptors.describe(TARGETS).startswith(said)


def test_none_are_no_words() -> None:
    assert descriptors.describe([]) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_it_can_be_told_when_not_one_is_left() -> None:
    """To list them would need one more."""
    program = """
        import os, resource
        from holdfast.diagnosis import descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        try:
            while True:
                os.open("/etc/passwd", os.O_RDONLY)
        except OSError:
            print(descriptors.held())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.startswith("64 of 64: "), done.stderr
    assert "in /etc" in done.stdout

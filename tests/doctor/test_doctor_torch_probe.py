"""torch, imported by another process: one that works, crashes, raises, hangs, or is no torch at all."""

from __future__ import annotations

import json

import pytest

from holdfast.doctor import torch_probe
from holdfast.doctor.checks import torch_and_driver
from holdfast.doctor.finding import Level

SAYS = {"version": "9.9", "cuda_built": "12.8", "cuda_works": False, "devices": 0, "said": ["too old\nfor this"]}
PROGRAMS = {
    "crashes": ("import ctypes; ctypes.string_at(8)", "SIGSEGV"),
    "raises": ("raise OSError('libcudart.so.12: cannot open')", "OSError: libcudart.so.12: cannot open"),
    "exits": ("import os; os._exit(3)", "status 3"),
    "hangs": ("import time; time.sleep(600)", "had not ended after 1 s"),
    "is something else": ("print('hello')", "is not torch"),
    "says nothing": ("pass", "is not torch"),
}


@pytest.fixture(autouse=True)
def torch_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_probe, "installed_version", lambda name: "9.9")


@pytest.mark.parametrize("how", PROGRAMS)
def test_a_torch_that_does_not_work_is_told_by_its_process(how: str) -> None:
    """It ends that process and not this one; why is in the finding."""
    program, why = PROGRAMS[how]
    found = torch_probe.probe(program, limit_s=1.0 if how == "hangs" else 60.0)
    assert not found.works
    assert why in found.why_not
    (finding,) = torch_and_driver.judge(torch_and_driver.Facts(found))
    assert finding.level is Level.PROBLEM
    assert found.why_not in finding.evidence


def test_a_torch_that_works_says_what_it_is() -> None:
    found = torch_probe.probe(f"print('noise'); print({json.dumps(SAYS)!r})")
    assert (found.works, found.cuda_built, found.said) == (True, "12.8", ("too old for this",))
    assert found.import_s > 0


def test_torch_may_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is started."""
    monkeypatch.setattr(torch_probe, "installed_version", lambda name: None)
    monkeypatch.setattr(torch_probe.subprocess, "run", None)
    assert torch_probe.probe() == torch_probe.TorchProbe(None, why_not="torch is not installed")

"""What a new process is started with."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler

import pytest

from holdfast.workers.start_methods import ImportersName


@pytest.fixture
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_the_name_of_an_importer_is_a_name_like_any_other(collecting: None) -> None:
    """And by the time a new interpreter has it, the garbage collector is off."""
    name = ImportersName("supervisor")
    assert name == "supervisor"
    assert gc.isenabled()
    arrived = pickle.loads(bytes(ForkingPickler.dumps({"name": name, "main": "train.py"})))
    assert arrived == {"name": "supervisor", "main": "train.py"}
    assert type(arrived["name"]) is str
    assert not gc.isenabled()


def test_what_arrives_needs_no_module_of_ours(collecting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read before the new interpreter knows where to look for one."""
    data = bytes(ForkingPickler.dumps(ImportersName("supervisor")))
    for module in [name for name in sys.modules if name.partition(".")[0] == "holdfast"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert pickle.loads(data) == "supervisor"

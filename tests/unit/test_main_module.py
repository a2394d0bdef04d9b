"""Which classes and functions of the main script a spawned process will find under their names."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.transport import main_module

SCRIPT = """
import collections, os.path
import json as js
from functools import partial, reduce as fold

class Dataset:
    class Inner:
        def method(self): ...
    def __getitem__(self, index): ...

def collate(samples): ...
async def fetch(): ...

def decorated(function):
    def wrapper(): ...
    return wrapper

@decorated
def wrapped(): ...

square = lambda x: x * x
Point = collections.namedtuple("Point", "x y")
alias = collate

def make():
    class Local: ...
    def closure(): ...
    return Local, closure
Local, closure = make()

if True:
    class UnderIf: ...
else:
    class UnderElse: ...

try:
    import surely_not_there
    class InTry: ...
except ImportError:
    surely_not_there = None
else:
    class InTryElse: ...
finally:
    class InFinally: ...

with open(os.devnull):
    class InWith: ...

if __name__ == "__main__":
    class Guarded: ...
    def guarded(): ...
    if True:
        class Nested: ...
else:
    class OnlyWhenImported: ...

if "__main__" == __name__:
    class GuardedBackwards: ...
"""


def run_as_main(monkeypatch: pytest.MonkeyPatch, path: Path, source: str) -> ModuleType:
    """Run a script as the interpreter does."""
    path.write_text(source)
    main = ModuleType("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(source, str(path), "exec"), vars(main))
    return main


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    return run_as_main(monkeypatch, tmp_path / "train.py", SCRIPT)


@pytest.mark.parametrize(
    "name", ["Dataset", "collate", "fetch", "decorated", "make", "UnderIf", "InTryElse", "InFinally", "InWith"]
)
def test_what_the_import_defines_is_found_again(script: ModuleType, name: str) -> None:
    """Classes and functions at the top level, or under conditions that the import runs through."""
    if name == "InTryElse":
        script.InTryElse = type("InTryElse", (), {"__module__": "__main__"})  # as where the try had succeeded
    assert main_module.finds_again(getattr(script, name))


def test_a_class_in_a_class_is_found_again(script: ModuleType) -> None:
    """By its qualified name, and its methods too."""
    assert main_module.finds_again(script.Dataset.Inner)
    assert main_module.finds_again(script.Dataset.Inner.method)


def test_a_class_bound_by_a_call_is_found_again(script: ModuleType) -> None:
    """A namedtuple is bound by an assignment."""
    assert main_module.finds_again(script.Point)


@pytest.mark.parametrize("name", ["Guarded", "guarded", "Nested", "GuardedBackwards"])
def test_what_is_under_the_main_guard_is_not_found_again(script: ModuleType, name: str) -> None:
    """The import does not run it: it has to be sent by value."""
    assert hasattr(script, name)
    assert not main_module.finds_again(getattr(script, name))


def test_what_the_guard_keeps_from_the_script_is_found_by_the_import(script: ModuleType) -> None:
    """The other branch of the guard is the one that a spawned process runs."""
    script.OnlyWhenImported = type("OnlyWhenImported", (), {"__module__": "__main__"})
    assert main_module.finds_again(script.OnlyWhenImported)


@pytest.mark.parametrize("name", ["square", "Local", "closure", "wrapped"])
def test_what_its_own_name_does_not_lead_to_is_not_found_again(script: ModuleType, name: str) -> None:
    """Lambdas, classes and functions made inside functions: their qualified name is no path."""
    assert not main_module.finds_again(getattr(script, name))


def test_a_class_defined_by_hand_is_not_found_again(script: ModuleType) -> None:
    """It is in `__main__`, but no line of the script says so (an interactive session after a script)."""
    script.ByHand = type("ByHand", (), {"__module__": "__main__"})
    assert not main_module.finds_again(script.ByHand)


def test_a_class_that_was_replaced_is_not_found_again(script: ModuleType) -> None:
    """The name leads to another object: sending the name would send that one."""
    old = script.Dataset
    script.Dataset = type("Dataset", (), {"__module__": "__main__"})
    assert not main_module.finds_again(old)


def test_a_class_that_is_gone_from_the_module_is_not_found_again(script: ModuleType) -> None:
    """A deleted name leads nowhere."""
    old = script.Dataset
    del script.Dataset
    assert not main_module.finds_again(old)


def test_objects_without_a_name_are_not_found_again(script: ModuleType) -> None:
    """An instance is no class or function."""
    assert not main_module.finds_again(script.Dataset())
    assert not main_module.finds_again(None)


@pytest.mark.parametrize("file", ["<stdin>", "<string>", None])
def test_without_a_file_nothing_is_found_again(script: ModuleType, file: str | None) -> None:
    """A notebook, `python - < script`, `python -c`: there is nothing to import."""
    if file is None:
        del script.__file__
    else:
        script.__file__ = file
    assert not main_module.finds_again(script.Dataset)


@pytest.mark.parametrize("source", [b"class Dataset: ...\n(", b"\xff\xfe\x00", b"x = 1\0"])
def test_a_file_that_cannot_be_read_as_python_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: bytes
) -> None:
    """The script changed while it ran, or is no script: then by value, and no error."""
    main = run_as_main(monkeypatch, tmp_path / "broken.py", "class Dataset: ...")
    (tmp_path / "broken.py").write_bytes(source)
    assert not main_module.finds_again(main.Dataset)


def test_a_script_in_another_encoding_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its first line says which."""
    main = run_as_main(monkeypatch, tmp_path / "latin.py", "class Dataset: ...")
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\n# é\nclass Dataset: ...\n".encode("latin-1"))
    assert main_module.finds_again(main.Dataset)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("try:\n    import surely_not_there\nexcept ImportError:\n    class Fallback: ...", "Fallback"),
        ("Fallback: type = type('Fallback', (), {'__module__': '__main__'})", "Fallback"),
        ("for _ in range(1):\n    def looped(): ...", "looped"),
    ],
    ids=["except", "annotated", "loop"],
)
def test_what_is_defined_in_less_common_places_is_found_again_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, name: str
) -> None:
    """The branch for a library that is missing, an annotated assignment, a loop: the import runs them all."""
    main = run_as_main(monkeypatch, tmp_path / "places.py", source)
    assert main_module.finds_again(getattr(main, name))


# --- starting a process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["<stdin>", "surely/not/there.py"])
def test_a_main_script_that_is_no_file_is_hidden_while_a_process_starts(script: ModuleType, file: str) -> None:
    """multiprocessing would try to import it in the child, and fail there."""
    script.__file__ = file
    with main_module.startable():
        assert not hasattr(script, "__file__")
    assert script.__file__ == file


def test_the_name_comes_back_when_the_start_fails(script: ModuleType) -> None:
    """Also after an error."""
    script.__file__ = "<stdin>"
    with pytest.raises(OSError, match="no more processes"), main_module.startable():
        raise OSError("no more processes")
    assert script.__file__ == "<stdin>"


def test_a_real_script_is_left_alone(script: ModuleType, tmp_path: Path) -> None:
    """It is imported again, as ever."""
    with main_module.startable():
        assert script.__file__ == str(tmp_path / "train.py")


def test_a_session_without_a_file_is_left_alone(script: ModuleType) -> None:
    """A notebook has none to hide."""
    del script.__file__
    with main_module.startable():
        assert not hasattr(script, "__file__")
    assert not hasattr(script, "__file__")

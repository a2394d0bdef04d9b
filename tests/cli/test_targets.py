"""MODULE:DATASET on the command line: files by way of links, and modules whose exceptions say anything."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from holdfast.cli import targets

HOSTILE = "\x1b]0;title\x07 first line\nsecond line " + "very " * 1000


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("linked_set", "link", "beside_it", "hostile"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_link_stands_for_its_file(own_folder: Path) -> None:
    """It is the same module, and finds what lies beside the file."""
    (own_folder / "project").mkdir()
    (own_folder / "project" / "linked_set.py").write_text("from beside_it import numbers\n")
    (own_folder / "project" / "beside_it.py").write_text("numbers = [1, 2, 3]\n")
    (own_folder / "link.py").symlink_to("project/linked_set.py")
    targets.check_module("link.py:numbers")
    dataset = targets.load_dataset("link.py:numbers")
    assert dataset == [1, 2, 3]
    assert targets.load_dataset("project/linked_set.py:numbers") is dataset
    assert "link" not in sys.modules


@pytest.mark.parametrize("name", ["5d41402a", "linked.v2.py"])
def test_a_link_to_what_is_no_name_of_a_module(own_folder: Path, name: str) -> None:
    """As in a store of files by their contents: the name of the link is the module's."""
    (own_folder / "store").mkdir()
    (own_folder / "store" / name).write_text("numbers = [1, 2, 3]\n")
    (own_folder / "link.py").symlink_to(f"store/{name}")
    assert targets.load_dataset("link.py:numbers") == [1, 2, 3]
    assert "link" in sys.modules


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"raise ValueError({HOSTILE!r})", "Importing hostile failed: ValueError:  ]0;title  first line second line"),
        (
            f"def made():\n    raise OSError({HOSTILE!r})",
            "hostile:made() raised: OSError:  ]0;title  first line second",
        ),
        ("class Mute(Exception):\n    __str__ = None\n\nraise Mute", "Importing hostile failed: Mute"),
    ],
    ids=["module", "maker", "mute"],
)
def test_what_a_module_raises_is_quoted_in_a_line(own_folder: Path, code: str, said: str) -> None:
    """Whatever is in it: bounded, and no order to a terminal."""
    (own_folder / "hostile.py").write_text(code)
    with pytest.raises(click.UsageError) as refused:
        targets.load_dataset("hostile:made")
    assert refused.value.message.startswith(said)
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 400

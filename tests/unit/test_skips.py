"""The samples that were passed over, and the file that remembers them: one that several runs share and crashes tear."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.loader import skips
from holdfast.loader.skips import KnownBad, SkippedFile

HEADER = b'{"holdfast":"skipped samples","version":1,"dataset_length":64}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "skipped.jsonl"


def line(index: Any, reason: str = "r") -> bytes:
    return json.dumps({"index": index, "reason": reason}, separators=(",", ":")).encode() + b"\n"


# --- known bad ----------------------------------------------------------------------------------------------------


def test_an_index_is_known_with_its_first_reason() -> None:
    """To note it again says that it was known, and changes nothing."""
    known = KnownBad()
    assert not known
    assert known.add(17, "first") is True
    assert known.add(17, "second") is False
    assert known
    assert 17 in known
    assert 18 not in known
    assert known.reason(17) == "first"


def test_numbers_of_numpy_are_the_same_index() -> None:
    """A sampler may give either."""
    known = KnownBad()
    known.add(17, "r")
    assert np.int64(17) in known
    assert known.add(np.int64(17), "r") is False


def test_tensors_of_one_number_are_the_same_index(path: Path) -> None:
    """As from `torch.randperm` without `tolist()`: each is another object, and equals no other as a key."""
    torch = pytest.importorskip("torch")
    known = KnownBad()
    assert known.add(torch.tensor(17), "r") is True
    assert 17 in known
    assert torch.tensor(17) in known
    assert torch.tensor(18) not in known
    assert known.reason(torch.tensor(17)) == "r"
    assert known.add(torch.tensor(17), "r") is False
    SkippedFile(path, 64).append(torch.tensor(17), "r")
    assert SkippedFile(path, 64).read() == {17: "r"}


@pytest.mark.parametrize("index", [[1, 2], {"a": 1}, np.arange(3), (1, [2])], ids=repr)
def test_an_index_that_cannot_be_hashed_is_never_known(index: object) -> None:
    """It is tried each time, and nothing breaks."""
    known = KnownBad()
    known.add(1, "r")
    assert known.add(index, "r") is False
    assert index not in known


# --- the file: what is written is read ----------------------------------------------------------------------------


def test_no_file_is_made_as_long_as_nothing_is_skipped(path: Path) -> None:
    """Reading does not create it."""
    assert SkippedFile(path, 64).read() == {}
    assert not path.exists()


def test_the_file_says_what_it_is_and_has_a_line_for_each(path: Path) -> None:
    """As the module's docstring shows it."""
    file = SkippedFile(path, 64)
    file.append(17, "ValueError: bad header")
    file.append("a/b.png", "hung")
    header, *lines = path.read_bytes().splitlines(keepends=True)
    entries = [json.loads(each) for each in lines]
    assert header == HEADER
    assert [(entry["index"], entry["reason"]) for entry in entries] == [
        (17, "ValueError: bad header"),
        ("a/b.png", "hung"),
    ]
    assert entries[0]["run"] == entries[1]["run"] != ""
    assert SkippedFile(str(path), 64).read() == {17: "ValueError: bad header", "a/b.png": "hung"}


@pytest.mark.parametrize("length", [None, 0, 1, 2**40])
def test_the_length_of_the_dataset_may_be_unknown(path: Path, length: int | None) -> None:
    """An iterable has none; that is a length of its own kind."""
    SkippedFile(path, length).append(1, "r")
    assert SkippedFile(path, length).read() == {1: "r"}


indices: st.SearchStrategy[Any] = st.recursive(
    st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner | st.none() | st.booleans(), max_size=3).map(tuple),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.dictionaries(indices, st.text(st.characters(codec="utf-8")), max_size=6))
def test_any_index_is_read_as_it_was_written(path: Path, entries: dict[Any, str]) -> None:
    """Numbers, strings with line ends in them, and tuples of both, in any order."""
    path.unlink(missing_ok=True)
    for index, reason in entries.items():
        SkippedFile(path, 64).append(index, reason)
    assert SkippedFile(path, 64).read() == entries


@pytest.mark.parametrize(
    ("index", "plain"), [(np.int64(7), 7), (np.uint8(7), 7), ((np.int32(1), "x"), (1, "x")), (np.str_("x"), "x")]
)
def test_numbers_of_numpy_are_written_as_numbers(path: Path, index: Any, plain: Any) -> None:
    """`np.random.permutation` is a sampler, too: what it gives must be remembered."""
    SkippedFile(path, 64).append(index, "r")
    assert SkippedFile(path, 64).read() == {plain: "r"}


@pytest.mark.parametrize(
    "index", [None, 1.5, True, b"x", [1], {1}, np.arange(2), (1, b"x"), (1, {2}), (Path("x"),)], ids=repr
)
def test_an_index_that_could_not_be_read_back_is_left_out(path: Path, index: Any) -> None:
    """Without an error, in the middle of an epoch, and without a file."""
    SkippedFile(path, 64).append(index, "r")
    assert not path.exists()


def test_a_reason_is_cut(path: Path) -> None:
    """A line stays a line."""
    SkippedFile(path, 64).append(1, "x" * 10_000)
    assert SkippedFile(path, 64).read() == {1: "x" * 500}


# --- the file: shared -----------------------------------------------------------------------------------------------


def test_a_line_is_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the first line, if it is the first: nobody can get in between."""
    writes: list[bytes] = []
    write = os.write

    def noted(fd: int, data: bytes) -> int:
        writes.append(data)
        return write(fd, data)

    monkeypatch.setattr(skips.os, "write", noted)
    file = SkippedFile(path, 64)
    file.append(1, "r")
    file.append(2, "r")
    file.withdraw()
    assert [write.count(b"\n") for write in writes] == [2, 1, 1]
    assert writes[0].startswith(HEADER)
    assert b"".join(writes) == path.read_bytes()


def test_two_ranks_append_in_turn(path: Path) -> None:
    """Both are read by the next run."""
    ranks = SkippedFile(path, 64), SkippedFile(path, 64)
    for index in range(10):
        ranks[index % 2].append(index, "r")
    assert SkippedFile(path, 64).read() == dict.fromkeys(range(10), "r")


class Interrupted:
    """The module `os`, for one who is interrupted after so many calls of it."""

    def __init__(self, calls: int, interrupt: Callable[[], object]) -> None:
        self._left, self._interrupt = calls, interrupt

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(found) if callable(found) else found

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            result = call(*args)
            self._left -= 1
            if self._left == 0:
                self._interrupt()
            return result

        return called


@pytest.mark.parametrize("before", [b"", HEADER, HEADER[:30], HEADER[:-1], HEADER + line(0)[:9]], ids=repr)
@pytest.mark.parametrize("calls", range(1, 13))
def test_nothing_is_lost_when_two_ranks_write_at_the_same_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes, calls: int
) -> None:
    """The other rank's whole append happens between any two of our system calls."""
    if before:
        path.write_bytes(before)
    ours, theirs = SkippedFile(path, 64), SkippedFile(path, 64)
    monkeypatch.setattr(skips, "os", Interrupted(calls, lambda: theirs.append(1, "theirs")))
    ours.append(2, "ours")
    ours.append(3, "ours")
    assert SkippedFile(path, 64).read() == {1: "theirs", 2: "ours", 3: "ours"}


# --- the file: withdrawn ----------------------------------------------------------------------------------------------


def test_a_run_withdraws_its_own_lines_and_no_others(path: Path) -> None:
    """Neither those of another loader of this process, nor of an older version, nor what it writes itself later."""
    path.write_bytes(HEADER + line(1))
    ours, other = SkippedFile(path, 64), SkippedFile(path, 64)
    ours.append(2, "r")
    other.append(3, "r")
    ours.append(4, "r")
    ours.withdraw()
    assert SkippedFile(path, 64).read() == {1: "r", 3: "r"}
    ours.append(5, "r")
    assert SkippedFile(path, 64).read() == {1: "r", 3: "r", 5: "r"}


def test_who_has_written_nothing_has_nothing_to_withdraw(path: Path) -> None:
    """No file is made for it."""
    SkippedFile(path, 64).withdraw()
    assert not path.exists()


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda file: pickle.loads(pickle.dumps(file))])
def test_a_copy_is_a_run_of_its_own(path: Path, how: Callable[[SkippedFile], SkippedFile]) -> None:
    """As a loader that is sent to another process has."""
    ours = SkippedFile(path, 64)
    ours.append(1, "r")
    copied = how(ours)
    copied.withdraw()
    copied.append(2, "r")
    ours.withdraw()
    assert SkippedFile(path, 64).read() == {2: "r"}


@pytest.mark.parametrize("withdrawn", [b"17", b"null", b"[1]", b'{"a":1}', b'"x"'])
def test_a_withdrawal_of_nothing_we_know_does_no_harm(path: Path, withdrawn: bytes) -> None:
    """Lines without a run are withdrawn by none."""
    path.write_bytes(HEADER + line(1) + b'{"withdrawn":' + withdrawn + b"}\n")
    assert SkippedFile(path, 64).read() == {1: "r"}


# --- the file: torn -------------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, len(HEADER + line(1) + line(2))))
def test_a_file_that_was_torn_anywhere_is_read_and_goes_on(path: Path, cut: int) -> None:
    """What was whole is there, what is appended later is there, and what was torn does no harm."""
    whole = HEADER + line(1) + line(2)
    path.write_bytes(whole[:cut])
    kept = {k: "r" for k in (1, 2) if cut >= len(HEADER + line(1) * k)}
    assert SkippedFile(path, 64).read() == kept
    for index in (3, 4):
        SkippedFile(path, 64).append(index, "later")
    whole_but_for_its_end = {k: "r" for k in (1, 2) if cut >= len(HEADER + line(1) * k) - 1}
    assert SkippedFile(path, 64).read() == {**whole_but_for_its_end, 3: "later", 4: "later"}


def test_a_first_line_that_was_torn_again_and_again_does_no_harm(path: Path) -> None:
    """Three machines went down at the first line."""
    path.write_bytes(HEADER[:20] + b"\n" + HEADER[:40] + b"\n" + HEADER[:1])
    assert SkippedFile(path, 64).read() == {}
    SkippedFile(path, 64).append(5, "r")
    assert SkippedFile(path, 64).read() == {5: "r"}


@pytest.mark.parametrize("torn", [b'{"index":', b"\x00\x00\x00\x00", b"\xff\xfe", b"[1]", b'{"index":{"a":1}}', b""])
def test_a_line_in_the_middle_that_is_not_whole_is_passed_over(path: Path, torn: bytes) -> None:
    """Also zeros, which some file systems leave after a power cut."""
    path.write_bytes(HEADER + line(1) + torn + b"\n" + line(2))
    assert SkippedFile(path, 64).read() == {1: "r", 2: "r"}


# --- the file: not for us -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [63, None])
def test_a_file_of_another_dataset_is_refused(path: Path, length: int | None) -> None:
    """Its indices would mean other samples. Both lengths are named, and the remedy."""
    SkippedFile(path, 64).append(1, "r")
    with pytest.raises(ValueError, match=rf"^skipped_file='{path}' .* 64 samples, .* has {length}: .*delete this one$"):
        SkippedFile(path, length).read()


def test_a_whole_first_line_without_its_end_is_checked_too(path: Path) -> None:
    """It was torn between the line and its end."""
    path.write_bytes(HEADER[:-1])
    with pytest.raises(ValueError, match="of a dataset of 64 samples"):
        SkippedFile(path, 63).read()


def test_a_file_of_a_later_version_is_refused(path: Path) -> None:
    """It may mean something that we do not know."""
    path.write_bytes(HEADER.replace(b'"version":1', b'"version":2'))
    with pytest.raises(ValueError, match="is of version 2, this is 1"):
        SkippedFile(path, 64).read()


@pytest.mark.parametrize(
    "content",
    [
        b"my notes\n",
        b"my notes",
        b"{\n  'a': 1\n}\n",
        b'{"a":1}\n',
        b'{"a":1}',
        b"[]\n",
        b"17\n18\n",
        b"\x89PNG\r\n\x1a\n",
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    """Also one without any end of line, which could be a torn first line of ours but is not."""
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a file of skipped samples of holdfast"):
        SkippedFile(path, 64).read()
    assert path.read_bytes() == content

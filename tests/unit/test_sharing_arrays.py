"""Shared arrays and bytes: what they were, read-only, on one segment."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from holdfast import share
from holdfast.sharing.arrays import find_array
from holdfast.sharing.blobs import SharedBytes

dtypes = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(),
    npst.floating_dtypes(),
    npst.complex_number_dtypes(),
    npst.datetime64_dtypes(),
    npst.unicode_string_dtypes(max_len=5),
    npst.byte_string_dtypes(max_len=5),
    npst.array_dtypes(),
)


@given(npst.arrays(dtypes, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)), st.data())
def test_a_shared_array_is_the_array(array: np.ndarray[Any, Any], data: st.DataObject) -> None:
    """Type, dtype (also structured, and of the other byte order), shape and elements; also of a view of any strides."""
    if array.ndim:
        array = array[data.draw(npst.basic_indices(array.shape, allow_newaxis=True, allow_ellipsis=False))]
        array = np.asarray(array).transpose()
    shared = share(array)
    assert type(shared) is np.ndarray
    assert (shared.dtype, shared.shape) == (array.dtype, array.shape)
    assert shared.tobytes() == np.asarray(array).tobytes()


def test_a_dtype_of_another_library_is_kept() -> None:
    """numpy calls it by the name of its size: the bfloat16 of ml_dtypes, for example, "<V2"."""
    tests = pytest.importorskip("numpy._core._rational_tests")
    array = np.array([tests.rational(1, 2), tests.rational(3, 4)])
    shared = share(array)
    assert shared.dtype == array.dtype
    assert shared.tolist() == array.tolist()
    assert pickle.loads(ForkingPickler.dumps(shared)).dtype == array.dtype


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_of_axes_is_kept(order: Any) -> None:
    """As by a copy: what was fast to walk through stays so."""
    array = np.zeros((3, 4, 5), order=order)
    assert share(array).strides == array.strides
    assert share(array.transpose(1, 0, 2)).strides == array.transpose(1, 0, 2).copy(order="K").strides


def test_a_write_is_numpys_error_and_cannot_be_allowed() -> None:
    """The elements are not changed, nor can the flag be."""
    shared = share(np.arange(3))
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        shared[0] = 1
    with pytest.raises(ValueError, match="output array is read-only"):
        shared += 1
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        shared.flags.writeable = True
    assert shared.tolist() == [0, 1, 2]


def test_the_original_is_not_touched() -> None:
    """It stays the user's own: what is written to it is not shared."""
    array = np.arange(3)
    shared = share(array)
    array[0] = 5
    assert shared.tolist() == [0, 1, 2]


def test_what_is_shared_is_returned_as_it_is() -> None:
    """Also a view of it, which lies in the segment already."""
    shared = share(np.arange(10))
    assert share(shared) is shared
    part = shared[2:4]
    assert share(part) is part


def test_a_memory_map_becomes_an_array(tmp_path: Path) -> None:
    """Read into memory: workers need not have the file."""
    np.save(tmp_path / "x.npy", np.arange(5))
    shared = share(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert type(shared) is np.ndarray
    assert shared.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([None]), r"obj \(numpy.ndarray\) cannot be shared: its elements are Python objects\n  try   share "),
        (np.ma.masked_array([1, 2], [0, 1]), r"cannot be shared: a MaskedArray is more than its memory\n  try   "),
    ],
)
def test_arrays_that_are_more_than_memory_are_refused(array: Any, message: str) -> None:
    """With what to share in their place."""
    with pytest.raises(TypeError, match=message):
        share(array)
    with pytest.raises(TypeError, match=r"obj\['a'\]"):
        share({"a": array})


def test_a_copy_is_the_users_own() -> None:
    """As any copy of an array."""
    own = copy.deepcopy(share(np.arange(3)))
    own[0] = 7
    assert own.tolist() == [7, 1, 2]


def test_pickled_to_a_file_it_is_a_plain_array() -> None:
    """By value."""
    loaded = pickle.loads(pickle.dumps(share(np.arange(1000))))
    assert np.array_equal(loaded, np.arange(1000))
    assert not find_array(loaded)


def test_views_are_found_in_the_segment() -> None:
    """Slices, steps, columns, backwards, and other dtypes: all travel as handles. What is computed does not."""
    shared = share(np.arange(10_000).reshape(100, 100))
    for view in (shared[3], shared[5:20, ::-3], shared.T, shared[::-1], shared.view(np.uint8), shared.reshape(-1)):
        found = find_array(view)
        assert found is not None
        place, form = found
        assert place.handle.nbytes == shared.nbytes
        assert form.shape == view.shape
    assert find_array(shared + 1) is None
    assert find_array(shared[:0]) is None


def test_arrays_that_are_not_shared_are_pickled_as_ever() -> None:
    """Also after something has been shared: multiprocessing's pickler asks us about every array."""
    share(np.arange(3))
    for array in (np.arange(5), np.array([None, 1]), np.ones((2, 3)).T, np.zeros(0)):
        loaded = pickle.loads(ForkingPickler.dumps(array))
        assert loaded.tolist() == array.tolist()
        assert loaded.flags.writeable


# -- bytes -------------------------------------------------------------------------------------------------------------


@given(st.binary(min_size=1), st.data())
def test_shared_bytes_are_the_bytes(content: bytes, data: st.DataObject) -> None:
    """Items, slices (which are plain bytes), searching, equality and hash."""
    shared = share(content)
    assert isinstance(shared, SharedBytes)
    part = data.draw(st.slices(len(content)))
    sub = data.draw(st.binary(max_size=3) | st.just(content[part]))
    assert type(shared[part]) is bytes
    assert shared[part] == content[part]
    assert [*shared] == [*content]
    assert [shared[0], shared[-1], len(shared)] == [content[0], content[-1], len(content)]
    assert shared == content == bytes(shared)
    assert content == shared
    assert (shared == sub) == (content == sub)
    assert hash(shared) == hash(content)
    assert shared.find(sub) == content.find(sub)
    assert (sub in shared) == (sub in content)
    assert shared.startswith(sub) == content.startswith(sub)
    assert shared.endswith(sub) == content.endswith(sub)
    assert (content[0] in shared, 256 in shared) == (True, False)


def test_shared_bytes_work_where_a_buffer_is_wanted() -> None:
    """Without a copy, and read-only."""
    shared = share(b"\1\0\0\0" * 1000)
    assert np.frombuffer(shared.view(), np.int32).sum() == 1000
    assert io.BytesIO(shared.view()).read(2) == b"\1\0"
    assert shared.view().readonly
    if sys.version_info >= (3, 12):
        assert memoryview(shared)[0] == 1  # type: ignore[arg-type]


def test_shared_bytes_are_decoded_copied_shown_and_pickled_as_bytes_are() -> None:
    """By value to a file."""
    shared = share("Grüße, ".encode() * 1000)
    assert shared.decode() == "Grüße, " * 1000
    assert copy.deepcopy(shared) is copy.copy(shared) is shared
    assert pickle.loads(pickle.dumps(shared)) == "Grüße, ".encode() * 1000
    assert type(pickle.loads(pickle.dumps(shared))) is bytes
    assert repr(shared).endswith(", 9000 bytes)")

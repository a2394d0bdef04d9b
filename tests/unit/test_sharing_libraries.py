"""Sparse matrices of scipy and tables of Arrow, where these libraries are installed."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

from holdfast import share
from holdfast.sharing.arrays import find_array
from holdfast.sharing.segment import is_in_a_segment

pytestmark = pytest.mark.usefixtures("sharer_stopped")


def sent(obj: Any) -> Any:
    return pickle.loads(ForkingPickler.dumps(obj))


# -- scipy -------------------------------------------------------------------------------------------------------------


def matrix(form: str, kind: str = "matrix") -> Any:
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.arange(60.0).reshape(6, 10) % 4
    return getattr(sparse, f"{form}_{kind}")(dense)


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "dia"])
def test_a_shared_sparse_matrix_is_what_it_was(form: str, kind: str) -> None:
    """Its type, format, shape and elements, here and where it is sent; its arrays are shared."""
    original = matrix(form, kind)
    shared = share(original)
    assert len(ForkingPickler.dumps(shared)) < 1000
    for one in (shared, sent(shared)):
        assert type(one) is type(original)
        assert np.array_equal(one.toarray(), original.toarray())
        assert find_array(one.data)
        assert np.array_equal((one @ np.ones(10)), original @ np.ones(10))
        assert np.array_equal((one + one).toarray(), 2 * original.toarray())
        with pytest.raises(ValueError, match="read-only"):
            one.data[0] = 1
    assert not find_array(original.data)


def test_a_matrix_with_duplicates_can_be_used_all_the_same() -> None:
    """scipy sums them in place when it first needs to, which it could not do any more: we do."""
    sparse = pytest.importorskip("scipy.sparse")
    data = np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([0, 2, 3])
    original = sparse.csr_matrix(data, shape=(2, 3))
    shared = share(original)
    assert shared.max() == 3
    assert shared[0, 1] == 3
    assert len(original.data) == 3, "the original is as it was"


@pytest.mark.parametrize("form", ["lil", "dok"])
def test_formats_made_of_python_objects_are_refused(form: str) -> None:
    """With the format to share in their place."""
    with pytest.raises(TypeError, match=rf"obj\['m'\] .* the format '{form}' is made of .*\n  try   share x.tocsr\(\)"):
        share({"m": matrix(form)})


# -- pyarrow -----------------------------------------------------------------------------------------------------------


def table() -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    columns = {f"column {number}": np.arange(10_000) + number for number in range(20)}
    return pyarrow.table({**columns, "name": [f"name {number}" for number in range(10_000)], "none": [None] * 10_000})


def addresses(column: Any) -> list[tuple[int, int]]:
    return [
        (buffer.address, buffer.size) for chunk in column.chunks for buffer in chunk.buffers() if buffer is not None
    ]


def test_a_shared_table_is_what_it_was() -> None:
    """A table of Arrow's own, on shared memory; here and where it is sent, as a small handle."""
    original = table()
    shared = share(original)
    assert len(ForkingPickler.dumps(shared)) < 1000
    for one in (shared, sent(shared)):
        assert type(one) is type(original)
        assert one.equals(original)
        assert all(is_in_a_segment(*place) for place in addresses(one["name"]))
    assert share(shared) is shared


def test_what_is_made_of_a_shared_table_is_not_copied_either() -> None:
    """A slice, some columns: Arrow takes them apart, and their buffers travel as handles."""
    part = share(table()).slice(100, 5000).select(["name", "column 3"])
    assert len(ForkingPickler.dumps(part)) < 3000
    arrived = sent(part)
    assert arrived.equals(part)
    assert all(is_in_a_segment(*place) for place in addresses(arrived["name"]))


def test_tables_that_are_not_shared_travel_as_ever() -> None:
    """Also after one has been shared; and to a file a shared one goes by value."""
    shared, other = share(table()), table()
    assert sent(other).equals(other)
    loaded = pickle.loads(pickle.dumps(shared))
    assert loaded.equals(shared)
    assert not any(is_in_a_segment(*place) for place in addresses(loaded["name"]))


def test_a_table_of_no_rows_can_be_shared() -> None:
    """There is its schema."""
    empty = table().slice(0, 0)
    assert share({"t": empty})["t"].equals(empty)

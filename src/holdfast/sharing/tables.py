"""Arrow tables: written to a segment as an Arrow stream, and read from it without a copy.

What arrives is an ordinary `pyarrow.Table` on the segment's memory. The whole table travels as the place of its stream.
What is made of it (a slice, some columns) travels as Arrow takes it apart, its buffers as places in the segment.

pyarrow is imported only where there is a table. Runs in: any process.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.sharing.builder import Builder
from holdfast.sharing.segment import Place, SegmentHandle, SharedSegment, locate

if TYPE_CHECKING:
    import pyarrow


class TableForm(NamedTuple):
    """A table in a segment."""

    start: int
    nbytes: int


# Every table that was read here, by id(): with a reference that tells when it is gone.
_read: dict[int, tuple[weakref.ref[Any], SegmentHandle, TableForm]] = {}


def write_table(table: pyarrow.Table, builder: Builder) -> TableForm:
    import pyarrow

    start = builder.align()
    with pyarrow.ipc.new_stream(pyarrow.PythonFile(_Sink(builder), "w"), table.schema) as stream:
        stream.write_table(table)
    return TableForm(start, builder.nbytes - start)


def read_table(segment: SharedSegment, form: TableForm) -> pyarrow.Table:
    import pyarrow

    stream = pyarrow.py_buffer(segment.view[form.start : form.start + form.nbytes])
    table = pyarrow.ipc.open_stream(stream).read_all()
    number = id(table)
    _read[number] = weakref.ref(table, lambda ref: _forget(number, ref)), segment.handle, form
    return table


def _forget(number: int, ref: weakref.ref[Any]) -> None:
    if number in _read and _read[number][0] is ref:
        del _read[number]


def find_table(table: pyarrow.Table) -> tuple[SegmentHandle, TableForm] | None:
    """Where a table was read from, if it was."""
    found = _read.get(id(table))
    return found[1:] if found is not None and found[0]() is table else None


def find_buffer(buffer: pyarrow.Buffer) -> Place | None:
    """The segment that an Arrow buffer is a part of, if it is one, and where in it."""
    return locate(buffer.address, buffer.size) if buffer.size else None


class _Sink:
    """A file that Arrow writes to."""

    closed = False

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._builder.append(view)
        return view.nbytes

    def flush(self) -> None:
        """The builder does that."""

    def close(self) -> None:
        """The builder goes on."""

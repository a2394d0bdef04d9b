"""How what is shared travels: as a handle to another process, by value to a file.

    pickle.dumps, torch.save, cloudpickle        by value: a plain list, dict, array or tensor
    Process.start, queues, pipes, pools, jobs    multiprocessing's pickler, and ours, have a table of their own that
                                                 says how a type is taken apart; `install` adds to it

A view of what is shared is sent as a handle too. What this process has written to goes by value, and what is not shared
as it would without us. torch's own way of sending a tensor moves its memory to where every process writes to it: no
memory of a segment may ever go that way, whatever is made of it. Runs in: any process that has something shared.
"""

from __future__ import annotations

import functools
import pickle
import sys
import warnings
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from holdfast.errors import HoldfastWarning
from holdfast.sharing import arrays, tables
from holdfast.sharing.blobs import SharedBytes
from holdfast.sharing.dicts import SharedDict
from holdfast.sharing.items import Items
from holdfast.sharing.key_index import IndexForm
from holdfast.sharing.lists import SharedList
from holdfast.sharing.runs import ItemsForm
from holdfast.sharing.segment import Array, SharedSegment
from holdfast.transport import pickling
from holdfast.words import decimal_size

Reduced = Any  # what a `__reduce__` returns
_installed: set[str] = set()


def install() -> None:
    """From now on what is shared travels as a handle. Tensors and tables do once their library is imported."""
    for library, register in (("numpy", _register_ours), ("torch", _register_torch), ("pyarrow", _register_pyarrow)):
        if library not in _installed and library in sys.modules:
            _installed.add(library)
            register()


def _register_ours() -> None:
    for kind, reduce in ((SharedList, _reduce_list), (SharedDict, _reduce_dict), (SharedBytes, _reduce_bytes)):
        ForkingPickler.register(kind, reduce)
    ForkingPickler.register(np.ndarray, functools.partial(_reduce_array, pickle.DEFAULT_PROTOCOL))
    pickling.job_reducers[np.ndarray] = functools.partial(_reduce_array, 5)
    pickling.handle_makers[np.ndarray] = _array_handle


def _register_torch() -> None:
    import torch.multiprocessing
    from torch.utils.data._utils.collate import default_collate_fn_map

    torchs = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind, reduce in (
        (torch.Tensor, _reduce_tensor),
        (torch.nn.Parameter, _reduce_parameter),
        (torch.UntypedStorage, _reduce_storage),  # all other tensors are reduced to one
    ):
        ForkingPickler.register(kind, functools.partial(reduce, torchs[kind]))
    pickling.handle_makers[torch.Tensor] = _tensor_handle
    collate_as_they_are = default_collate_fn_map[bytes]
    default_collate_fn_map.setdefault(SharedBytes, collate_as_they_are)
    # `default_collate` makes tensors of read-only arrays only to copy them, and torch warns of it in every worker.
    collating = r"torch\.utils\.data\._utils\.collate"
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning, collating)


def _register_pyarrow() -> None:
    import pyarrow

    ForkingPickler.register(pyarrow.Table, _reduce_table)
    ForkingPickler.register(pyarrow.Buffer, _reduce_buffer)


# -- on the way out ----------------------------------------------------------------------------------------------------


def _reduce_list(shared: SharedList[Any]) -> Reduced:
    return read_list, (shared.source.segment.handle, shared.source.form, shared.rows)


def _reduce_dict(shared: SharedDict[Any, Any]) -> Reduced:
    keys, values = shared.key_items, shared.value_items
    return read_dict, (keys.segment.handle, keys.form, values.form, shared.index)


def _reduce_bytes(shared: SharedBytes) -> Reduced:
    return read_bytes, (shared.segment.handle, shared.start, shared.nbytes)


def _reduce_array(protocol: int, array: Array) -> Reduced:
    return _array_handle(array) or array.__reduce_ex__(protocol)


def _array_handle(array: Array) -> Reduced | None:
    found = arrays.find_array(array)
    if found is None:
        return None
    place, form = found
    return read_array, (place.handle, tuple(form))


def _reduce_tensor(otherwise: Callable[[Any], Reduced], tensor: Any) -> Reduced:
    if not _is_shared(tensor):
        return otherwise(tensor)
    return _tensor_handle(tensor) or _reduce_written(tensor)


def _tensor_handle(tensor: Any) -> Reduced | None:
    """None also of one that was written to in this process."""
    found = arrays.find_tensor(tensor) if _is_shared(tensor) else None
    if found is None:
        return None
    place, form = found
    return read_tensor, (place.handle, tuple(form))


def _is_shared(tensor: Any) -> bool:
    return arrays.is_dense(tensor) and tensor.grad_fn is None and arrays.is_shared_tensor(tensor)


def _reduce_written(tensor: Any) -> Reduced:
    """What this process holds is what is sent, by value, so that it is private over there as well."""
    packed, strides = arrays.pack_tensor(tensor)
    _warn_of_copy(packed.nbytes)
    shape = tuple(tensor.shape)
    return arrays.tensor_on, (bytearray(packed), tensor.dtype, shape, strides, tensor.requires_grad)


def _reduce_parameter(otherwise: Callable[[Any], Reduced], parameter: Any) -> Reduced:
    tensor = parameter.detach()
    if not arrays.is_dense(tensor) or not arrays.is_shared_tensor(tensor):
        return otherwise(parameter)
    return type(parameter), (tensor, parameter.requires_grad)


def _reduce_storage(otherwise: Callable[[Any], Reduced], storage: Any) -> Reduced:
    if not arrays.is_shared_storage(storage):
        return otherwise(storage)
    place = arrays.find_storage(storage)
    if place is None:
        _warn_of_copy(storage.nbytes())
        return arrays.storage_on, (bytearray(arrays.bytes_of_storage(storage)),)
    return read_storage, (place.handle, place.start, storage.nbytes())


def _warn_of_copy(nbytes: int) -> None:
    if get_spawning_popen() is not None:
        warnings.warn(
            f"a shared tensor was written to in this process, so a new process is sent a copy of it "
            f"({decimal_size(nbytes)})\n"
            f"  try   tensor = holdfast.share(tensor)   once it has been written to",
            HoldfastWarning,
            stacklevel=3,
        )


def _reduce_table(table: Any) -> Reduced:
    found = tables.find_table(table)
    if found is None:
        return table.__reduce__()
    handle, form = found
    return read_table, (handle, *form)


def _reduce_buffer(buffer: Any) -> Reduced:
    place = tables.find_buffer(buffer)
    if place is None:
        return buffer.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    return read_buffer, (place.handle, place.start, buffer.size)


# -- on arrival: a handle has become a segment -------------------------------------------------------------------------


def read_list(segment: SharedSegment, form: ItemsForm, rows: range) -> SharedList[Any]:
    install()
    return SharedList(Items(segment, form), rows)


def read_dict(
    segment: SharedSegment, keys: ItemsForm, values: ItemsForm, index: IndexForm | None
) -> SharedDict[Any, Any]:
    install()
    return SharedDict(Items(segment, keys), Items(segment, values), index)


def read_bytes(segment: SharedSegment, start: int, nbytes: int) -> SharedBytes:
    install()
    return SharedBytes(segment, start, nbytes)


def read_array(segment: SharedSegment, form: tuple[Any, ...]) -> Array:
    install()
    return arrays.read_array(segment, arrays.ArrayForm(*form))


def read_tensor(segment: SharedSegment, form: tuple[Any, ...]) -> Any:
    tensor = arrays.read_tensor(segment, arrays.TensorForm(*form))
    install()
    return tensor


def read_storage(segment: SharedSegment, start: int, nbytes: int) -> Any:
    storage = arrays.storage_on(segment.writable[start : start + nbytes])
    install()
    return storage


def read_table(segment: SharedSegment, start: int, nbytes: int) -> Any:
    table = tables.read_table(segment, tables.TableForm(start, nbytes))
    install()
    return table


def read_buffer(segment: SharedSegment, start: int, nbytes: int) -> Any:
    import pyarrow

    install()
    return pyarrow.py_buffer(segment.view[start : start + nbytes])

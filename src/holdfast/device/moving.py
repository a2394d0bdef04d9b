"""The tensors of a batch moved to a device, its structure and everything else as it was.

Containers are rebuilt as torch's `pin_memory` rebuilds them. An object with its own `to()` moves itself, and so do
sparse and nested tensors and subclasses: what they hold cannot be seen from
outside, and they are left for `move_others`.

Runs in: main process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torch
from torch import Tensor

Change = Callable[[Any], Any]


_HOLDS_NO_MEMORY = frozenset({str, bytes, int, float, complex, bool, type(None)})


class Mover:
    """Moves the tensors of one batch. `moved`: those on the device; `has_others`: something else may lie in its slots.

    Of that, what has a `to()` of its own is left for `move_others`. The rest, an array or an object that is no
    container, stays as it is: the user may copy from it whenever he likes.
    `is_pinned`: its slots are, so it is not asked of each tensor. One that lies elsewhere all the same is waited for.
    """

    def __init__(self, device: torch.device, *, is_pinned: bool = False) -> None:
        self._device = device
        self._is_pinned = is_pinned
        # A tensor that is in the batch twice is in the result twice. By its id, which is its own while it is kept here:
        # a container may make its tensors when it is asked for them, and the next would have the id of the last.
        self._known: dict[int, tuple[Tensor, Tensor]] = {}
        self.moved: list[Tensor] = []
        self.has_others = False

    def move(self, batch: Any) -> Any:
        return change_leaves(batch, self._move_leaf)

    def _move_leaf(self, leaf: Any) -> Any:
        if not _is_plain(leaf):
            self.has_others = self.has_others or type(leaf) not in _HOLDS_NO_MEMORY
            return leaf
        known = self._known.get(id(leaf))
        if known is None:
            known = self._known[id(leaf)] = leaf, move_tensor(leaf, self._device, is_pinned=self._is_pinned)
            self.moved.append(known[1])
        return known[1]


def move_tensor(tensor: Tensor, device: torch.device, *, is_pinned: bool) -> Tensor:
    """On the current stream; to CUDA without waiting for it."""
    source = tensor.detach() if tensor.requires_grad else tensor
    if not is_pinned and device.type == "cuda" and not source.is_pinned():
        source = source.pin_memory()
    moved = source.to(device, non_blocking=_may_go_on_by_itself(device))
    return moved.requires_grad_() if tensor.requires_grad else moved


def move_others(batch: Any, device: torch.device) -> Any:
    """What moves itself, on the current stream."""
    return change_leaves(batch, lambda leaf: _moved_by_itself(leaf, device) if _moves_itself(leaf) else leaf)


def move_all(batch: Any, device: torch.device) -> Any:
    """Tensors and what moves itself, on the current stream."""
    return move_others(Mover(device).move(batch), device)


def _is_plain(leaf: Any) -> bool:
    """Dense memory on the CPU, and nothing else to it."""
    return type(leaf) is Tensor and leaf.is_cpu and leaf.layout is torch.strided and not leaf.is_nested


def _moves_itself(leaf: Any) -> bool:
    return not _is_plain(leaf) and not isinstance(leaf, type) and callable(getattr(leaf, "to", None))


def _moved_by_itself(leaf: Any, device: torch.device) -> Any:
    try:
        return leaf.to(device, non_blocking=_may_go_on_by_itself(device))
    except TypeError:
        return leaf.to(device)


def _may_go_on_by_itself(device: torch.device) -> bool:
    """Whether a copy need not be waited for. Of CUDA's we know when they are done, or that memory which is not pinned
    has been read when the call returns; others might read a slot that is another batch's by then.
    """
    return device.type == "cuda"


def change_leaves(data: Any, change: Change) -> Any:
    """`data` with `change` applied to everything in it that is not a container."""
    if isinstance(data, Tensor | str | bytes | bytearray | memoryview) or _moves_itself(data):
        return change(data)
    if isinstance(data, Mapping):
        return _change_mapping(data, change)
    if isinstance(data, Sequence):
        return _change_sequence(data, change)
    return change(data)


def _change_mapping(data: Mapping[Any, Any], change: Change) -> Any:
    before = dict(data.items())
    items = {key: change_leaves(value, change) for key, value in before.items()}
    if all(items[key] is value for key, value in before.items()):
        return data
    try:
        if isinstance(data, MutableMapping):
            clone = copy.copy(data)
            clone.update(items)
            return clone
        return type(data)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _change_sequence(data: Sequence[Any], change: Change) -> Any:
    before = list(data)
    items = [change_leaves(item, change) for item in before]
    if all(item is as_it_was for item, as_it_was in zip(items, before, strict=True)):
        return data  # it may be of a kind that cannot be rebuilt: a range, say
    try:
        if isinstance(data, MutableSequence):
            clone = copy.copy(data)
            for at, item in enumerate(items):
                clone[at] = item
            return clone
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)  # type: ignore[call-arg]
    except TypeError:
        return tuple(items) if isinstance(data, tuple) else items

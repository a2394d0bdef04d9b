"""The class that stands where torch's DataLoader stood: ours, with what `holdfast run` was told as its defaults.

A subclass of torch's by way of `holdfast.DataLoader`: what the script subclasses, checks with `isinstance` or rebuilds
from attributes works as it did. Loaders that the script makes of holdfast's own class get the same defaults.
Imports torch, and is imported when somebody has asked for a loader.

Runs in: the script's process, and those it starts.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import warnings
from typing import Any, TypeVar

import torch.utils.data
import torch.utils.data.dataloader

import holdfast
from holdfast.errors import HoldfastWarning
from holdfast.tasks.runner.loader_options import NO_LIMIT
from holdfast.tasks.runner.settings import Settings
from holdfast.tasks.runner.skipping import SkippedFileOwner
from holdfast.tasks.runner.tally import TALLY

T_co = TypeVar("T_co", covariant=True)

_NEED_WORKERS = ("sample_timeout", "memory_limit", "memory_budget", "recycle_after")
_SIGNATURE = inspect.signature(holdfast.DataLoader.__init__)
_TORCHS = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
_OUR_ATTRIBUTES = {*_SIGNATURE.parameters} - {*_TORCHS, "backend"} | {"shuffle"}
"""Attributes of ours that torch's loader does not have, and a subclass of it may use for something of its own."""

_stock = torch.utils.data.DataLoader
_defaults: dict[str, Any] = {}
_file_owner = SkippedFileOwner()


class DataLoader(holdfast.DataLoader[T_co]):
    """`holdfast.DataLoader`, made by a script that asked for torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        theirs = {name: value for name, value in vars(self).items() if name in _OUR_ATTRIBUTES}
        super().__init__(*args, **{**_defaults_for(args, kwargs), **kwargs})
        vars(self).update(theirs)  # set by a subclass before it called us

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OUR_ATTRIBUTES and hasattr(type(self), name):
            return  # a property of a subclass, which was there first
        super().__setattr__(name, value)

    def _get_iterator(self) -> Any:
        TALLY.note(self.num_workers, self._counters, self.incidents)
        return super()._get_iterator()


# For frameworks that rebuild a loader by the names of its arguments.
functools.update_wrapper(DataLoader.__init__, holdfast.DataLoader.__init__)


def replace_everywhere(told: Settings) -> None:
    """Put the class wherever a module has torch's by its name, or ours."""
    _defaults.update(told.loader_options)
    if "retry_on" in _defaults:
        _defaults["retry_on"] = tuple(getattr(builtins, name) for name in _defaults["retry_on"])
    if _defaults.get("max_skipped") == NO_LIMIT:
        _defaults["max_skipped"] = None
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        if any(names.get("DataLoader") is each for each in (_stock, DataLoader.__base__)):
            names["DataLoader"] = DataLoader


def _defaults_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What applies to a loader with these arguments, of which some may be wrong: that is for torch to say."""
    try:
        given = _SIGNATURE.bind_partial(None, *args, **kwargs).arguments
    except TypeError:
        return {}
    defaults = {name: value for name, value in _defaults.items() if name not in given}
    if not given.get("num_workers", 0):
        for name in _NEED_WORKERS:  # in the script's own process there is nobody to watch
            defaults.pop(name, None)
    if isinstance(defaults.get("max_skipped"), float) and not _has_length(given):
        del defaults["max_skipped"]
        _warn_no_length(given.get("dataset"))
    if "skipped_file" in defaults and not _may_skip(given, defaults):
        del defaults["skipped_file"]
    return defaults


def _may_skip(given: dict[str, Any], defaults: dict[str, Any]) -> bool:
    """Whether the file is for this loader: one that passes samples over, and of the dataset that the file is about."""
    if given.get("on_error", defaults.get("on_error")) == "raise":
        return False
    return _file_owner.may_use(defaults["skipped_file"], given.get("dataset"))


def _has_length(given: dict[str, Any]) -> bool:
    """Of an epoch, which a share needs. What is missing altogether is for torch to say."""
    source = given.get("dataset") if given.get("sampler") is None else given["sampler"]
    return source is None or hasattr(source, "__len__")


def _warn_no_length(dataset: object) -> None:
    message = f"max_skipped is a share of the epoch, but {type(dataset).__name__} has no len(): here it has no effect"
    warnings.warn(message, HoldfastWarning, stacklevel=4)  # of who makes the loader

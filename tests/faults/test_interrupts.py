"""A signal handler of the user's that raises inside `next()`, again and again."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

import pytest
import torch

from helpers import Numbers, Program, stay, wait_until_ended, worker_pids
from holdfast import DataLoader
from holdfast.loader.interrupts import came_from_handler

OTHERS = ["map", "unordered", "persistent"]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "what", ["growing", "stream", *(pytest.param(what, marks=pytest.mark.long) for what in OTHERS)]
)
def test_an_epoch_survives_a_storm_of_interrupts(what: str, seed: int) -> None:
    """Nothing stalls, nothing comes twice or out of order, and only what was given out already may be missing."""
    with Program("interrupted_epoch.py", what, str(seed)) as program:
        assert program.wait() == 0
        assert program.stdout.splitlines()[-1] == "done"
        program.wait_until_nothing_is_left()


@pytest.mark.parametrize("method", ["spawn", "portable"])
def test_an_interrupt_while_new_processes_start_is_the_main_processs_alone(method: str) -> None:
    """They import the main script, for seconds, when Ctrl-C reaches all: no traceback of theirs, nothing is left."""
    with Program("interrupted_start.py", method) as program:
        program.wait_for_lines("importing")
        program.signal_group(signal.SIGINT)
        assert program.wait() == -signal.SIGINT
        program.wait_until_nothing_is_left()
        assert program.stderr.count("KeyboardInterrupt") == 1, program.stderr


@pytest.mark.parametrize("persistent", [False, True])
def test_an_interrupt_ends_the_workers_and_the_epoch_can_go_on(
    persistent: bool, usr1: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps the traceback, as a notebook does, keeps no process; who goes on gets every batch."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(usr1, interrupt)
    dataset = InterruptsItsLoader(8, usr1)
    loader = DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    delivered = [next(iterator)[0, 0].item(), next(iterator)[0, 0].item()]
    wait = iterator._backend.wait

    def say_and_wait(timeout_s: float) -> object:
        dataset.is_awaited.fill_(1)
        return wait(timeout_s)

    monkeypatch.setattr(iterator._backend, "wait", say_and_wait)
    with pytest.raises(KeyboardInterrupt) as caught:
        next(iterator)
    pids = worker_pids(iterator)
    wait_until_ended(pids)
    assert caught.value.__traceback__ is not None
    delivered.extend(batch[0, 0].item() for batch in iterator)
    assert delivered == [0, 2, 4, 6]
    if persistent:  # and another epoch
        assert [batch[0, 0].item() for batch in loader] == [0, 2, 4, 6]
    loader.close()


class InterruptsItsLoader(Numbers):
    """Sample 4 has a signal sent to the process that made the loader, once, when that waits for the sample; and stays
    until it is ended for it.
    """

    def __init__(self, length: int, number: signal.Signals) -> None:
        super().__init__(length)
        self.number, self.owner = number, os.getpid()
        self.is_awaited, self.done = (torch.zeros(1, dtype=torch.uint8).share_memory_() for _ in range(2))

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 4 and not self.done.item():
            while not self.is_awaited.item():
                time.sleep(0.01)
            self.done.fill_(1)
            os.kill(self.owner, self.number)
            stay("asleep")
        return super().__getitem__(index)


class Interrupted(Exception):
    """Raised by a handler."""


def raise_interrupted(_: int, frame: FrameType | None) -> None:
    raise Interrupted


class Handler:
    """An object that can be called, with a method that can, too."""

    def __call__(self, *_: object) -> None:
        raise Interrupted

    def method(self, *_: object) -> None:
        raise Interrupted


@pytest.fixture
def usr1() -> Iterator[signal.Signals]:
    """A signal to be handled, and its handler afterwards as before."""
    before = signal.getsignal(signal.SIGUSR1)
    yield signal.SIGUSR1
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "handler",
    [raise_interrupted, Handler(), Handler().method, functools.partial(raise_interrupted)],
    ids=["function", "object", "method", "partial"],
)
def test_what_a_handler_raises_is_known_as_such(handler: signal._HANDLER, usr1: signal.Signals) -> None:
    """Whatever kind of callable it is."""
    signal.signal(usr1, handler)
    with pytest.raises(Interrupted) as caught:
        signal.raise_signal(usr1)
    assert came_from_handler(caught.value)


def test_what_others_raise_is_not_taken_for_an_interrupt(usr1: signal.Signals) -> None:
    """Not even with a handler installed that would raise the same."""
    signal.signal(usr1, raise_interrupted)
    with pytest.raises(Interrupted) as caught:
        raise Interrupted
    assert not came_from_handler(caught.value)


def test_a_sampler_that_an_interrupt_ended_is_an_error_and_not_the_end(usr1: signal.Signals) -> None:
    """A generator gives nothing more after a handler raised inside it: the epoch must not end as if it were whole."""

    def interrupted_sampler() -> Iterator[int]:
        yield from range(8)
        signal.raise_signal(usr1)
        yield from range(8, 16)

    signal.signal(usr1, raise_interrupted)
    delivered, raised = [], []
    iterator = iter(DataLoader(Numbers(16), batch_size=None, sampler=interrupted_sampler(), num_workers=2))
    while True:
        try:
            delivered.append(int(next(iterator)[0]))
        except StopIteration:
            break
        except (Interrupted, RuntimeError) as error:
            raised.append(str(error))
    assert delivered == list(range(8))
    assert raised == ["", "the sampler was ended by a signal handler that raised inside it"]


class RaisesOnLoad:
    """Cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return fail_to_load, ()


def fail_to_load() -> None:
    raise ValueError("cannot be loaded")


class Odd(Numbers):
    """Sample 2 cannot be read in the main process."""

    def __getitem__(self, index: int) -> object:  # type: ignore[override]
        return RaisesOnLoad() if index == 2 else super().__getitem__(index)


def test_a_batch_that_cannot_be_read_is_raised_once() -> None:
    """It is no interrupt, after which it would be read again."""
    delivered, raised = [], []
    iterator = iter(DataLoader(Odd(6), batch_size=None, num_workers=2))
    while True:
        try:
            delivered.append(int(next(iterator)[0]))
        except StopIteration:
            break
        except ValueError as error:
            raised.append(str(error))
    assert (delivered, raised) == ([0, 1, 3, 4, 5], ["cannot be loaded"])

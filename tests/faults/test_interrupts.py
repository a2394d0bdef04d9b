"""A signal handler of the user's that raises inside `next()`, again and again."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from helpers import Numbers, Program, stay, wait_until_ended, worker_pids
from holdfast import DataLoader
from holdfast.loader.interrupts import Errand, came_from_handler
from waits import PATIENCE_S, wait_until

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


def test_an_interrupt_at_any_line_makes_no_batch_wrong() -> None:
    """What comes is right, and stays so in the user's hands; what cannot come is an error, and never an early end."""
    for what in ("map", "replace", "stream"):
        interrupt_anywhere(what, points=6)


@pytest.mark.long
@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("what", ["map", "replace", "skip", "stream", "unordered", "persistent"])
def test_an_interrupt_at_more_lines_makes_no_batch_wrong(what: str, part: int) -> None:
    """The same at other lines, and with other ways to load."""
    interrupt_anywhere(what, points=30, part=part)


@pytest.mark.long
def test_an_interrupt_at_any_line_of_the_portable_backend_makes_no_batch_wrong() -> None:
    """The same with other processes."""
    interrupt_anywhere("portable", points=8)


def interrupt_anywhere(what: str, points: int, part: int = 0) -> None:
    with Program("interrupted_anywhere.py", what, str(points), str(part)) as program:
        assert program.wait(2 * PATIENCE_S) == 0
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
    delivered, raised = to_the_end(
        iter(DataLoader(Numbers(16), batch_size=None, sampler=interrupted_sampler(), num_workers=2)),
        (Interrupted, RuntimeError),
    )
    assert delivered == list(range(8))
    assert raised == ["", "the sampler was ended by a signal handler that raised inside it"]


def to_the_end(
    iterator: Iterator[Any], kinds: type[Exception] | tuple[type[Exception], ...]
) -> tuple[list[int], list[str]]:
    """What is delivered to one who goes on after each of these errors, and what the errors said."""
    delivered: list[int] = []
    raised: list[str] = []
    while True:
        try:
            delivered.append(int(next(iterator)[0]))
        except StopIteration:
            return delivered, raised
        except kinds as error:
            raised.append(str(error))


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
    delivered, raised = to_the_end(iter(DataLoader(Odd(6), batch_size=None, num_workers=2)), ValueError)
    assert (delivered, raised) == ([0, 1, 3, 4, 5], ["cannot be loaded"])


@pytest.mark.parametrize("persistent", [False, True])
def test_the_end_of_an_interrupted_epoch_is_its_end_as_often_as_it_is_asked(
    persistent: bool, usr1: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the thread that went on with it has nothing more to do."""
    signal.signal(usr1, raise_interrupted)
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    wait = iterator._backend.wait

    def interrupted_wait(timeout_s: float) -> object:
        monkeypatch.setattr(iterator._backend, "wait", wait)
        signal.raise_signal(usr1)
        return wait(timeout_s)

    monkeypatch.setattr(iterator._backend, "wait", interrupted_wait)
    with pytest.raises(Interrupted):
        next(iterator)
    assert [int(batch[0, 0]) for batch in iterator] == [0, 2, 4, 6]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
    loader.close()


class Counting:
    """An iterator of the user's, which a signal handler cuts short when it has gone on already."""

    def __init__(self, number: signal.Signals) -> None:
        self._number, self._next = number, 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> int:
        self._next += 1
        if self._next == 8:
            signal.raise_signal(self._number)
        if self._next > 16:
            raise StopIteration
        return self._next - 1


def test_an_index_that_an_interrupt_cut_off_is_an_error_and_not_left_out(usr1: signal.Signals) -> None:
    """Whether a sampler that is no generator has gone on nobody can know: its epoch ends with an error there."""
    signal.signal(usr1, raise_interrupted)
    delivered, raised = to_the_end(
        iter(DataLoader(Numbers(16), batch_size=None, sampler=Counting(usr1), num_workers=2)),
        (Interrupted, RuntimeError),
    )
    assert delivered == list(range(7))
    assert raised == ["", "the sampler was ended by a signal handler that raised inside it"]


def test_after_an_interrupt_in_the_middle_of_a_step_persistent_workers_are_new_ones(
    usr1: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their iterator raises why, as often as it is asked; the loader's next one is whole."""
    signal.signal(usr1, raise_interrupted)
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)

    def interrupted_step() -> None:
        signal.raise_signal(usr1)

    monkeypatch.setattr(iterator, "_book_due", interrupted_step)
    with pytest.raises(Interrupted):
        next(iterator)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^interrupted inside next\(\) at batch 1: .*; call iter\(\) again$"):
            next(iterator)
    assert [int(batch[0, 0]) for batch in loader] == [0, 2, 4, 6]
    loader.close()


def test_an_epoch_whose_beginning_was_interrupted_is_begun_anew(
    usr1: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With persistent workers, whose books are in the middle of one epoch and the next."""
    signal.signal(usr1, raise_interrupted)
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 4
    monkeypatch.setattr(loader._iterator, "_new_schedule", lambda first_unit: signal.raise_signal(usr1))
    with pytest.raises(Interrupted):
        iter(loader)
    assert [int(batch[0, 0]) for batch in loader] == [0, 2, 4, 6]
    loader.close()


class Waits(Numbers):
    """Sample 4 is loaded when the main process says so."""

    def __init__(self) -> None:
        super().__init__(8)
        self.may_load = torch.zeros(1, dtype=torch.uint8).share_memory_()

    def __getitem__(self, index: int) -> torch.Tensor:
        while index == 4 and not self.may_load.item():
            time.sleep(0.01)
        return super().__getitem__(index)


def test_a_batch_that_an_interrupted_call_asked_for_is_not_the_first_of_the_next_epoch(usr1: signal.Signals) -> None:
    """With persistent workers: what the second interrupt kept from being returned belongs to the old epoch."""
    signal.signal(usr1, raise_interrupted)
    dataset = Waits()
    loader = DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    assert [int(next(iterator)[0, 0]) for _ in range(2)] == [0, 2]
    for _ in range(2):  # of the second call the work goes on in the refuge
        with pytest.raises(Interrupted), signal_when(lambda: iterator._is_waiting and iterator._is_paused, usr1):
            next(iterator)
    dataset.may_load.fill_(1)
    wait_until(lambda: iterator._refuge._desk.outcomes, PATIENCE_S, "a batch in the refuge")
    assert [int(batch[0, 0]) for batch in loader] == [0, 2, 4, 6]
    loader.close()


@contextlib.contextmanager
def signal_when(condition: Callable[[], object], number: signal.Signals) -> Iterator[None]:
    """Have the main thread get the signal as soon as the condition is true."""

    def wait_and_signal() -> None:
        wait_until(condition, PATIENCE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    thread = threading.Thread(target=wait_and_signal)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_an_interrupt_at_the_beginning_of_close_leaves_no_worker(
    usr1: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The iterator counts as closed from there on, and nobody would end its workers later."""
    signal.signal(usr1, raise_interrupted)
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    pids = worker_pids(iterator)
    monkeypatch.setattr(iterator, "_end_rest", interrupt_once(usr1, iterator._end_rest))
    with pytest.raises(Interrupted):
        loader.close()
    wait_until_ended(pids)


def interrupt_once(number: signal.Signals, step: Callable[[], None]) -> Callable[[], None]:
    """The step, in whose first call the signal comes."""
    is_first = iter([True])

    def interrupted_step() -> None:
        if next(is_first, False):
            signal.raise_signal(number)
        step()

    return interrupted_step


def test_an_errand_that_is_waited_for_before_it_begins_is_not_run_later() -> None:
    """An interrupt may come before its thread has begun. By then there are new workers, which it must not end."""
    done: list[str] = []
    errand = Errand(lambda: done.append("ended all workers"))
    errand.wait()
    errand.run()
    assert not done

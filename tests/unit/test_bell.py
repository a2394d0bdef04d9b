"""The bell that wakes the thread of a pool: rung and hushed by whoever, whenever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.workers.bell import Bell
from waits import PATIENCE_S


@pytest.fixture
def bell() -> Iterator[Bell]:
    made = Bell()
    yield made
    made.close()


def test_rung_any_number_of_times_it_sounds_until_it_is_hushed(bell: Bell) -> None:
    assert not bell.connection.poll()
    for _ in range(3):
        bell.ring()
    assert bell.connection.poll()
    bell.hush()
    assert not bell.connection.poll()
    bell.ring()
    assert bell.connection.poll()


class Instead:
    """A connection, of which one method does something else first."""

    def __init__(self, connection: Any, name: str, first: Callable[[], None]) -> None:
        self._connection = connection
        self._name = name
        self._first = first

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._first()
        return getattr(self._connection, name)


def test_it_may_be_rung_by_the_thread_that_hushes_it(bell: Bell) -> None:
    """The collector runs wherever memory is asked for, and may find there the pool that the thread works for."""
    bell.ring()
    bell.connection = Instead(bell.connection, "poll", bell.ring)
    hushing = threading.Thread(target=bell.hush, daemon=True)
    hushing.start()
    hushing.join(PATIENCE_S)
    assert not hushing.is_alive()


def test_an_interrupt_while_it_is_rung_does_not_silence_it(bell: Bell) -> None:
    """Ctrl-C in `submit`: what is submitted afterwards is seen at once all the same."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    rope = bell._rope
    bell._rope = Instead(rope, "send_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bell.ring()
    bell._rope = rope
    bell.ring()
    assert bell.connection.poll()

"""The pipe between main and a worker: main never blocks, whatever the worker does not read, and nothing is torn."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.workers import pipes
from holdfast.workers.pipes import MainEnd, WorkerEnd

pytestmark = pytest.mark.timeout(30)

Pair = tuple[MainEnd, WorkerEnd]


@pytest.fixture(params=[8192, None], ids=["narrow", "wide"])
def ends(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both ends in one process, with the room of Windows' pipes and with that of this platform."""
    ours, theirs, room = pipes.pair()
    main = MainEnd(ours, request.param or room)
    yield main, WorkerEnd(theirs)
    main.close()
    theirs.close()


def hear(main: MainEnd) -> list[tuple[bytes, list[str]]]:
    """Everything that has come."""
    heard = []
    while main.has_news():
        received = main.receive()
        if received is not None:
            heard.append(received)
    return heard


@pytest.mark.parametrize("nbytes", [1, 3900, 4000, 4100])
def test_a_message_arrives_whole_in_both_directions(ends: Pair, nbytes: int) -> None:
    """In one piece or in two, with the names beside it."""
    main, worker = ends
    data = os.urandom(nbytes)
    main.send(data, ["one", "two"])
    assert not main.has_unsent
    assert worker.receive() == (data, ["one", "two"])
    worker.send(data, ["three"])
    assert hear(main) == [(data, ["three"])]


def test_main_never_blocks_and_everything_arrives_in_order(ends: Pair) -> None:
    """A megabyte that nobody reads waits in the outbox, and goes out as the worker reads."""
    main, worker = ends
    messages = [os.urandom(1 + 37 * k) for k in range(250)]
    start = time.monotonic()
    for message in messages:
        main.send(message)
    assert time.monotonic() - start < 10
    assert main.has_unsent
    received: list[object] = []

    def read() -> None:
        received.extend(worker.receive() for _ in messages)
        worker.say_read()

    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive():
        if main.connection.poll(0.01):
            hear(main)
    hear(main)
    assert received == [(message, []) for message in messages]
    assert not main.has_unsent


def test_small_messages_that_get_no_answer_do_not_use_up_the_room(ends: Pair) -> None:
    """A worker that reads and has nothing to say says how much it has read."""
    main, worker = ends
    for number in range(2000):
        main.send(b"%d" % number)
        assert worker.receive() == (b"%d" % number, [])
        hear(main)
    assert not main.has_unsent


def test_main_knows_when_names_have_been_opened(ends: Pair) -> None:
    """Not when they are read, but when the worker asks for more."""
    main, worker = ends
    mark = main.send(b"open this", ["name"])
    assert worker.receive() == (b"open this", ["name"])
    hear(main)
    assert not main.has_read(mark)
    main.send(b"and then")
    worker.receive()
    hear(main)
    assert main.has_read(mark)


def test_the_worker_is_told_to_end_after_what_it_was_sent(ends: Pair) -> None:
    """It was not cut off then."""
    main, worker = ends
    main.send(b"last")
    main.end_sending()
    assert worker.receive() == (b"last", [])
    assert worker.receive() is None
    assert not worker.was_cut_off


def test_a_worker_that_is_hung_up_on_knows_it(ends: Pair) -> None:
    """What was sent before arrives; then nothing more, and sending is a ConnectionError."""
    main, worker = ends
    main.send(b"before")
    main.close()
    assert worker.receive() == (b"before", [])
    assert worker.receive() is None
    assert worker.was_cut_off
    with pytest.raises(ConnectionError):
        worker.send(b"too late")


def test_what_a_dead_worker_had_sent_is_there_and_half_a_message_is_not(ends: Pair) -> None:
    """Whole messages are read, then the end is known."""
    main, worker = ends
    worker.send(b"whole")
    for piece in pipes._pieces(0, bytes(10_000), ())[:-1]:
        worker._connection.send_bytes(piece)
    worker._connection.close()
    assert hear(main) == [(b"whole", [])]
    assert main.is_over
    main.send(b"nobody reads this")


@pytest.mark.parametrize("act", [lambda main: main.send(b"data"), lambda main: main.receive()], ids=["send", "receive"])
def test_an_interrupt_in_the_middle_tears_the_line(
    ends: Pair, act: Callable[[MainEnd], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far it came nobody knows: it is not used any more."""
    main, worker = ends
    worker.send(b"waiting")

    class Interrupted:
        closed = False

        def send_bytes(self, data: bytes) -> None:
            raise KeyboardInterrupt

        def recv_bytes(self) -> bytes:
            raise KeyboardInterrupt

    connection = main.connection
    monkeypatch.setattr(main, "connection", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        act(main)
    monkeypatch.setattr(main, "connection", connection)
    assert main.is_torn
    assert not main.has_news()

"""A socket between two processes: whole messages, descriptors beside them, and no blocking in a send."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.workers import channel
from holdfast.workers.channel import MAX_MESSAGE, Channel
from waits import PATIENCE_S


@contextlib.contextmanager
def connected() -> Iterator[tuple[Channel, Channel]]:
    """Two ends that do not block."""
    ours, theirs = (Channel(sock, blocking=False) for sock in channel.pair())
    try:
        yield ours, theirs
    finally:
        ours.close()
        theirs.close()


def received(end: Channel) -> list[bytes]:
    """Every message that is there now; descriptors are closed."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while (message := end.receive()) is not None:
            found.append(message[0])
            for fd in message[1]:
                os.close(fd)
    return found


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@settings(max_examples=50)
@given(messages=st.lists(st.binary(min_size=1, max_size=300) | st.just(b"x" * MAX_MESSAGE), max_size=10))
def test_messages_arrive_whole_and_in_order(messages: list[bytes]) -> None:
    """Each as one, up to 64 kB."""
    with connected() as (ours, theirs):
        for message in messages:
            ours.send(message)
        assert received(theirs) == messages


def test_both_directions_work_at_once() -> None:
    """One socket carries orders out and results back."""
    with connected() as (ours, theirs):
        ours.send(b"order")
        theirs.send(b"result")
        assert received(theirs) == [b"order"]
        assert received(ours) == [b"result"]


def test_a_descriptor_travels_with_its_message() -> None:
    """The other end gets one of its own, which closes on exec."""
    with connected() as (ours, theirs):
        reader, writer = os.pipe()
        ours.send(b"here it is", [writer])
        os.close(writer)
        message = theirs.receive()
        assert message is not None
        data, (fd,) = message
        assert data == b"here it is"
        assert not os.get_inheritable(fd)
        os.write(fd, b"through")
        os.close(fd)
        assert os.read(reader, 10) == b"through"
        os.close(reader)


def test_several_descriptors_travel_in_their_order() -> None:
    """As many as a batch can spill."""
    with connected() as (ours, theirs):
        pipes = [os.pipe() for _ in range(10)]
        ours.send(b"all", [writer for _, writer in pipes])
        message = theirs.receive()
        assert message is not None
        for k, ((reader, writer), fd) in enumerate(zip(pipes, message[1], strict=True)):
            os.write(fd, b"%d" % k)
            assert os.read(reader, 10) == b"%d" % k
            for one in (reader, writer, fd):
                os.close(one)


def test_nothing_there_is_told_from_the_end() -> None:
    """BlockingIOError while the other end lives, None when it is gone."""
    with connected() as (ours, theirs):
        with pytest.raises(BlockingIOError):
            ours.receive()
        theirs.close()
        assert ours.receive() is None
        assert ours.receive() is None


# --- a full socket ------------------------------------------------------------------------------------------------


def fill(end: Channel, message: bytes = b"x" * 30_000) -> int:
    """Send until messages wait. Returns how many were sent, the waiting one included."""
    count = 0
    while not end.has_unsent:
        end.send(message)
        count += 1
        assert count < 10_000
    return count


def test_a_send_does_not_block_when_the_other_end_does_not_read() -> None:
    """What does not fit waits in the outbox, however much it is."""
    with connected() as (ours, theirs):
        count = fill(ours)
        for _ in range(500):
            ours.send(b"y" * 30_000)
        assert ours.has_unsent
        assert len(received(theirs)) == count - 1


def test_a_small_message_does_not_overtake_a_waiting_one() -> None:
    """Order is kept though the small one would fit."""
    with connected() as (ours, theirs):
        sent = fill(ours, b"x" * MAX_MESSAGE)
        ours.send(b"small")
        got: list[bytes] = []
        while ours.has_unsent:
            got += received(theirs)
            ours.flush()
        got += received(theirs)
        assert got == [b"x" * MAX_MESSAGE] * sent + [b"small"]


def test_a_message_does_not_overtake_one_that_waits_though_there_is_room_again() -> None:
    """The other end has read, nobody has flushed yet: what is sent now goes to the end of the outbox."""
    with connected() as (ours, theirs):
        fill(ours)
        ours.send(b"first")
        received(theirs)
        ours.send(b"second")
        got: list[bytes] = []
        while ours.has_unsent:
            ours.flush()
            got += received(theirs)
        assert got[-2:] == [b"first", b"second"]


def test_a_flush_sends_as_much_as_there_is_room_for() -> None:
    """And leaves the rest for the next time the poller says so."""
    with connected() as (ours, theirs):
        fill(ours)
        for _ in range(100):
            ours.send(b"y" * 30_000)
        ours.flush()
        assert ours.has_unsent
        rounds = 0
        while ours.has_unsent:
            received(theirs)
            ours.flush()
            rounds += 1
            assert rounds < 100
        ours.flush()


def test_the_poller_says_when_there_is_room() -> None:
    """Not writable while full, writable once the other end has read."""
    with connected() as (ours, theirs):
        fill(ours)
        poll = select.poll()
        poll.register(ours, select.POLLOUT)
        assert poll.poll(0) == []
        received(theirs)
        assert poll.poll(PATIENCE_S * 1000) == [(ours.fileno(), select.POLLOUT)]


def test_descriptors_wait_with_their_message() -> None:
    """Their owner may close them meanwhile: the outbox has duplicates, and arrives with the right ones."""
    with connected() as (ours, theirs):
        fill(ours)
        pipes = [os.pipe() for _ in range(3)]
        for k, (_, writer) in enumerate(pipes):
            ours.send(b"pipe %d" % k, [writer])
            os.close(writer)
        found = []
        while ours.has_unsent or len(found) < 3:
            with contextlib.suppress(BlockingIOError):
                while (message := theirs.receive()) is not None:
                    if message[1]:
                        found.append(message)
            ours.flush()
        for k, (data, (fd,)) in enumerate(found):
            assert data == b"pipe %d" % k
            os.write(fd, b"%d" % k)
            os.close(fd)
            assert os.read(pipes[k][0], 10) == b"%d" % k
            os.close(pipes[k][0])


def test_descriptors_that_were_flushed_are_not_kept() -> None:
    """The duplicates are closed once sent."""
    with connected() as (ours, theirs):
        reader, writer = os.pipe()
        fill(ours)
        before = open_descriptors()
        ours.send(b"pipe", [writer])
        assert open_descriptors() == before + 1
        while ours.has_unsent:
            received(theirs)
            ours.flush()
        received(theirs)
        assert open_descriptors() == before
        os.close(reader)
        os.close(writer)


def test_closing_drops_what_waits_and_its_descriptors() -> None:
    """Messages in the outbox go with the channel, and their duplicates are closed."""
    before = open_descriptors()
    with connected() as (ours, _):
        reader, writer = os.pipe()
        fill(ours)
        for _ in range(5):
            ours.send(b"pipe", [writer, reader])
        os.close(reader)
        os.close(writer)
        ours.close()
        assert not ours.has_unsent
    assert open_descriptors() == before


# --- a peer that is gone ------------------------------------------------------------------------------------------


def test_what_a_dead_peer_had_sent_is_not_lost() -> None:
    """Also when it died with messages of ours unread: the kernel then reports an error before it hands them out."""
    with connected() as (ours, theirs):
        for k in range(5):
            ours.send(b"unread %d" % k)
            theirs.send(b"result %d" % k)
        theirs.close()
        assert received(ours) == [b"result %d" % k for k in range(5)]
        assert ours.receive() is None


def test_descriptors_of_a_dead_peer_arrive() -> None:
    """A worker's spilled memory survives the worker."""
    with connected() as (ours, theirs):
        reader, writer = os.pipe()
        ours.send(b"unread")
        theirs.send(b"spilled", [writer])
        theirs.close()
        os.close(writer)
        message = ours.receive()
        assert message is not None
        os.write(message[1][0], b"alive")
        assert os.read(reader, 10) == b"alive"
        os.close(message[1][0])
        os.close(reader)


def test_sending_to_a_dead_peer_is_an_error() -> None:
    """OSError, at once: its death is somebody's business."""
    with connected() as (ours, theirs):
        theirs.close()
        with pytest.raises(OSError, match="Broken pipe"):
            ours.send(b"anybody?")


def test_flushing_to_a_dead_peer_is_an_error_and_closing_still_works() -> None:
    """Nothing that waited is leaked."""
    before = open_descriptors()
    with connected() as (ours, theirs):
        fill(ours)
        reader, writer = os.pipe()
        ours.send(b"pipe", [writer])
        os.close(reader)
        os.close(writer)
        theirs.close()
        with pytest.raises(OSError, match=r"Broken pipe|Connection reset"):
            ours.flush()
    assert open_descriptors() == before


def test_shutdown_ends_the_conversation_for_every_holder_of_the_end() -> None:
    """A fork may have copied the descriptor: closing ours alone would leave the other side waiting."""
    with connected() as (ours, theirs):
        copy = os.dup(ours.fileno())
        ours.shutdown()
        assert theirs.receive() is None
        os.close(copy)
        ours.shutdown()


def test_end_sending_still_receives() -> None:
    """A retired worker hears that no more will come, and its last results are heard."""
    with connected() as (ours, theirs):
        ours.send(b"last order")
        ours.end_sending()
        assert received(theirs) == [b"last order"]
        assert theirs.receive() is None
        theirs.send(b"last result")
        assert received(ours) == [b"last result"]


def test_after_the_peer_is_gone_ending_is_harmless() -> None:
    """Shutdown and end_sending of a socket that has no other end."""
    with connected() as (ours, theirs):
        theirs.close()
        ours.end_sending()
        ours.shutdown()


def test_a_blocking_end_waits_for_its_message() -> None:
    """A worker has nothing else to do."""
    here, there = channel.pair()
    ours, theirs = Channel(here, blocking=False), Channel(there, blocking=True)
    assert there.getblocking()
    assert not here.getblocking()
    ours.send(b"go")
    assert theirs.receive() == (b"go", [])
    ours.close()
    assert theirs.receive() is None
    theirs.close()


def test_a_pair_has_room_for_many_units() -> None:
    """Prefetching does not fill a socket: a hundred units of a kilobyte fit without waiting."""
    with connected() as (ours, _):
        for _ in range(100):
            ours.send(b"x" * 1024)
        assert not ours.has_unsent


def test_the_ends_are_not_inherited_by_programs() -> None:
    """They close on exec."""
    ends = channel.pair()
    assert ends[0].type == socket.SOCK_SEQPACKET
    for end in ends:
        assert not end.get_inheritable()
        end.close()


@pytest.mark.parametrize("nbytes", [1, MAX_MESSAGE, MAX_MESSAGE + 1, 3_000_000])
def test_a_whole_message_may_have_any_length(nbytes: int) -> None:
    """What is too long for a packet travels in a file, and other descriptors with it."""
    ours, theirs = (Channel(end, blocking=True) for end in channel.pair())
    reading, writing = os.pipe()
    data = bytes(range(256)) * (nbytes // 256) + b"x" * (nbytes % 256)
    ours.send_whole(data, [reading])
    received = theirs.receive_whole()
    assert received is not None
    assert received[0] == data
    (fd,) = received[1]
    os.write(writing, b"through it")
    assert os.read(fd, 20) == b"through it"
    for each in (reading, writing, fd):
        os.close(each)
    ours.close()
    assert theirs.receive_whole() is None
    theirs.close()


def test_the_collector_does_not_close_the_main_processs_end() -> None:
    """Of garbage that refers to itself it might do so before a `__del__` that still wants to say something."""
    ours, theirs = channel.pair()
    garbage: list[object] = [Channel(ours, blocking=False)]
    garbage.append(garbage)
    number = ours.fileno()
    del ours, garbage
    gc.collect()
    (kept,) = (sock for sock in channel._open if sock.fileno() == number)
    kept.send(b"still there")
    assert theirs.recv(20) == b"still there"
    theirs.close()
    Channel(kept, blocking=False).close()
    assert kept not in channel._open

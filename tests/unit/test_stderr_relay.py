"""What a worker writes to stderr: passed on marked, whole lines together, the last words kept, and never blocking."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.workers.channel import is_readable
from holdfast.workers.stderr import Relay
from waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's pipes")


class Ends:
    """A relay, what the worker writes into, and what the user sees."""

    def __init__(self) -> None:
        reading, self.worker = os.pipe()
        self.screen, self.out = os.pipe()
        os.set_blocking(self.screen, False)
        self.relay = Relay(reading, self.out)
        self.relay.name("worker 1")
        self.open = [self.worker, self.screen, self.out]

    def say(self, text: bytes) -> None:
        os.write(self.worker, text)
        self.relay.take_in()

    def seen(self) -> bytes:
        try:
            return os.read(self.screen, 1 << 20)
        except BlockingIOError:
            return b""

    def hang_up(self) -> None:
        os.close(self.worker)
        self.open.remove(self.worker)


def fill(ends: Ends) -> int:
    """As many bytes as the screen takes without being read."""
    os.set_blocking(ends.out, False)
    filled = 0
    while True:
        try:
            filled += os.write(ends.out, bytes(4096))
        except BlockingIOError:
            break
    os.set_blocking(ends.out, True)
    return filled


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    for fd in made.open:
        os.close(fd)


def test_each_line_is_marked(ends: Ends) -> None:
    ends.say(b"one\ntwo\n")
    assert ends.seen() == b"[worker 1] one\n[worker 1] two\n"
    assert ends.relay.finish() == "one\ntwo\n"


def test_a_line_in_pieces_is_one_line(ends: Ends) -> None:
    """Two workers' pieces would run into each other; a bar that is drawn over itself ends in a carriage return."""
    ends.say(b"half ")
    assert ends.seen() == b""
    ends.say(b"whole\r10%\r")
    assert ends.seen() == b"[worker 1] half whole\r[worker 1] 10%\r"
    ends.relay.finish()


def test_an_unfinished_line_is_shown_after_a_while_and_marked_once(ends: Ends) -> None:
    """A prompt, say: at the next tick what there is of it is shown."""
    ends.say(b"really? ")
    ends.relay.push(unfinished=True)
    assert ends.seen() == b"[worker 1] really? "
    ends.say(b"yes\nnext\n")
    assert ends.seen() == b"yes\n[worker 1] next\n"
    ends.relay.finish()


def test_last_words_without_an_end_are_passed_on_with_one(ends: Ends) -> None:
    """What the next one says begins on a line of its own."""
    os.write(ends.worker, b"free(): double free")
    assert ends.relay.finish() == "free(): double free"
    assert ends.seen() == b"[worker 1] free(): double free\n"


def test_an_unfinished_line_that_was_shown_is_ended_too(ends: Ends) -> None:
    ends.say(b"half a li")
    ends.relay.push(unfinished=True)
    ends.relay.finish()
    assert ends.seen() == b"[worker 1] half a li\n"


def test_who_has_no_number_yet_is_a_spare() -> None:
    made = Ends()
    unnamed = Relay(os.dup(made.worker), made.out)
    assert unnamed._mark == b"[spare worker] "
    made.relay.finish()
    for fd in (*made.open, unnamed.fd):
        os.close(fd)


def test_only_the_tail_is_kept(ends: Ends) -> None:
    for k in range(20):
        ends.say(b"%d" % (k % 10) * 1000 + b"\n")
        ends.seen()
    tail = ends.relay.finish()
    assert len(tail) == 8 * 1024
    assert tail.endswith("9" * 1000 + "\n")


def test_bytes_that_are_no_text_are_kept_readable(ends: Ends) -> None:
    ends.say(b"\xff\xfe bad\n")
    assert ends.seen() == b"[worker 1] \xff\xfe bad\n"
    assert ends.relay.finish().endswith(" bad\n")


def test_where_the_screen_takes_nothing_the_worker_waits_and_not_we(ends: Ends) -> None:
    """Nothing is read that could not be passed on, and nothing is lost when it can be again."""
    filled = fill(ends)
    ends.say(b"waits\n")
    assert not ends.relay.wants_more
    while filled > 0:
        filled -= len(os.read(ends.screen, filled))
    ends.relay.push()
    assert ends.relay.wants_more
    assert ends.seen() == b"[worker 1] waits\n"
    ends.relay.finish()


def test_a_screen_that_is_gone_costs_nothing(ends: Ends) -> None:
    """As under `python train.py 2>&1 | head`."""
    os.close(ends.screen)
    ends.open.remove(ends.screen)
    ends.say(b"nobody reads this\n")
    assert ends.relay.wants_more
    assert ends.relay.finish() == "nobody reads this\n"


def test_the_end_is_noticed(ends: Ends) -> None:
    """And not asked for more, which a poll would say there is."""
    ends.hang_up()
    assert not ends.relay.take_in()
    assert not ends.relay.wants_more
    assert ends.relay.finish() == ""


def test_a_process_that_the_worker_left_behind_does_not_keep_us(ends: Ends) -> None:
    """It holds the pipe open: what there is is read, and no more waited for."""
    os.write(ends.worker, b"last\n")
    assert ends.relay.finish() == "last\n"


def test_redirected_stderr_reaches_the_relay(ends: Ends) -> None:
    """Also what C writes, and children that are not Python."""
    script = "import os; from holdfast.workers import stderr; stderr.redirect({}); os.system('echo from sh >&2')"
    subprocess.run([sys.executable, "-c", script.format(ends.worker)], pass_fds=[ends.worker], check=True, timeout=60)
    assert ends.relay.finish() == "from sh\n"


@pytest.mark.timeout(30)
def test_a_line_without_an_end_is_passed_on_in_parts(ends: Ends) -> None:
    """A progress bar that is never ended, or binary data: as fast as any other text, and kept in no buffer."""
    said = b""
    for _ in range(20):
        ends.say(b"y" * 60_000)
        said += ends.seen()
    ends.say(b"\n")
    said += ends.seen()
    assert said == b"[worker 1] " + b"y" * 1_200_000 + b"\n"
    ends.relay.finish()


@pytest.mark.timeout(30)
def test_what_a_worker_started_may_go_on_talking(ends: Ends) -> None:
    """Its own last words are had without waiting for the end of that."""
    os.set_blocking(ends.out, True)
    with subprocess.Popen(["yes"], stdout=ends.worker, stderr=subprocess.DEVNULL) as talker:
        ends.hang_up()
        wait_until(lambda: is_readable(ends.relay.fd), PATIENCE_S, "a word")
        assert ends.relay.finish().startswith("y")
        talker.wait(PATIENCE_S)  # it has nobody to talk to any more


def test_last_words_are_kept_though_the_screen_takes_nothing(ends: Ends) -> None:
    fill(ends)
    ends.say(b"waits\n")
    os.write(ends.worker, b"free(): double free\n")
    assert ends.relay.finish() == "waits\nfree(): double free\n"

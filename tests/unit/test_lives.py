"""Which worker processes began and ended, and what is said of why."""

from __future__ import annotations

from holdfast.workers.lives import Lives
from holdfast.workers.messages import Reason


def told(lives: Lives) -> list[tuple[str, int, str]]:
    return [(life.event, life.pid, life.why) for life in lives.news]


def test_the_next_life_says_how_the_last_one_ended() -> None:
    """Lost, recycled, or sent away for a while."""
    lives = Lives()
    lives.started(0, 10)
    for pid, (reason, replaced) in enumerate([(Reason.HUNG, True), (Reason.LEFT, True), (Reason.LEFT, False)], 11):
        lives.ended(0, reason, replaced=replaced)
        lives.started(0, pid)
    assert told(lives) == [
        *[("started", 10, "first"), ("ended", 10, "died"), ("started", 11, "restart")],
        *[
            ("ended", 11, "recycled"),
            ("started", 12, "recycled"),
            ("ended", 12, "done"),
            ("started", 13, "brought back"),
        ],
    ]


def test_what_is_said_twice_is_told_once() -> None:
    """As after an interrupt; and the end of one that never started is none."""
    lives = Lives()
    lives.started(0, 10)
    lives.started(0, 10)
    lives.ended(0, Reason.EXITED)
    lives.ended(0, Reason.EXITED)
    lives.ended(1, Reason.EXITED)
    assert told(lives) == [("started", 10, "first"), ("ended", 10, "died")]


def test_at_the_close_all_are_done() -> None:
    """However they have to be ended."""
    lives = Lives()
    lives.started(0, 10)
    lives.started(1, 11)
    lives.is_closing = True
    lives.ended(0, Reason.HUNG)
    lives.all_ended()
    assert told(lives)[2:] == [("ended", 10, "done"), ("ended", 11, "done")]

"""Which worker gets the next call: an idle one; the least busy one while calls are short; and what is taken back."""

from __future__ import annotations

from holdfast.pool.assignment import STUCK_AFTER_S, Assignment


def run(assignment: Assignment[int], calls: int, took_s: float) -> float:
    """So many calls, one after the other, by whoever is first. Returns the time after them."""
    now = 0.0
    for call in range(calls):
        worker = assignment.next_worker()
        assert worker is not None
        assignment.sent(worker, call, now)
        now += took_s
        assignment.came_back(worker, call, now)
    return now


def test_every_idle_worker_gets_a_call_before_any_gets_two() -> None:
    """Then nobody gets more, as long as nothing is known of how long calls take."""
    assignment: Assignment[int] = Assignment(3, can_take_back=True)
    workers = []
    while (worker := assignment.next_worker()) is not None:
        assignment.sent(worker, len(workers), 0.0)
        workers.append(worker)
    assert sorted(workers) == [0, 1, 2]
    assert assignment.under_way == 3


def test_the_worker_that_was_busy_last_comes_first() -> None:
    """Its caches are warm."""
    assignment: Assignment[int] = Assignment(4, can_take_back=True)
    assert assignment.next_worker() == 0
    run(assignment, 5, 0.1)
    assert assignment.next_worker() == 0


def test_short_calls_are_sent_ahead() -> None:
    """Up to four to each worker, evenly."""
    assignment: Assignment[int] = Assignment(2, can_take_back=True)
    now = run(assignment, 50, 0.0001)
    sent = []
    while (worker := assignment.next_worker()) is not None:
        assignment.sent(worker, len(sent), now)
        sent.append(worker)
    assert sorted(sent) == [0] * 4 + [1] * 4
    assert set(sent[:2]) == {0, 1}
    assert assignment.has_queues()


def test_long_calls_are_not_sent_ahead() -> None:
    """Nor are any where they could not be taken back."""
    slow: Assignment[int] = Assignment(2, can_take_back=True)
    run(slow, 50, 0.01)
    assert slow.depth == 1
    portable: Assignment[int] = Assignment(2, can_take_back=False)
    run(portable, 50, 0.0001)
    assert portable.depth == 1


def test_a_worker_is_stuck_when_it_stays_at_one_call_while_others_wait_behind_it() -> None:
    """Not when it has only one, and not while it goes on."""
    assignment: Assignment[int] = Assignment(1, can_take_back=True)
    now = run(assignment, 50, 0.0001)
    for call in (100, 101, 102):
        assignment.sent(0, call, now)
    assert assignment.stuck(now + STUCK_AFTER_S / 2) == []
    assert assignment.stuck(now + 2 * STUCK_AFTER_S) == [0]
    assignment.came_back(0, 100, now + 2 * STUCK_AFTER_S)
    assert assignment.stuck(now + 2 * STUCK_AFTER_S) == []
    assignment.lost(0, 102)
    assert assignment.stuck(now + 9 * STUCK_AFTER_S) == []
    assert assignment.under_way == 1


def test_a_worker_that_is_set_aside_gets_nothing_until_it_is_done() -> None:
    """Or until it is lost with all it had: then another has its place."""
    assignment: Assignment[int] = Assignment(1, can_take_back=True)
    now = run(assignment, 50, 0.0001)
    for end in (lambda: assignment.came_back(0, 100, now), lambda: assignment.lost(0, 100)):
        for call in (100, 101):
            assignment.sent(0, call, now)
        assignment.set_aside(0)
        assert assignment.next_worker() is None
        assignment.lost(0, 101)
        assert (assignment.next_worker(), assignment.under_way) == (None, 1)
        end()
        assert (assignment.next_worker(), assignment.under_way) == (0, 0)


def test_what_is_lost_leaves_its_worker_idle() -> None:
    """As many as it had."""
    assignment: Assignment[int] = Assignment(1, can_take_back=True)
    now = run(assignment, 50, 0.0001)
    for call in (100, 101):
        assignment.sent(0, call, now)
    assignment.lost(0, 100)
    assignment.lost(0, 101)
    assert (assignment.under_way, assignment.next_worker(), assignment.has_queues()) == (0, 0, False)

"""`holdfast top`: the loaders that run on this machine, and what each of their workers is doing.

    records.live ──► Watch ──► pictures ──► rows, on a terminal again and again | JSON

It only looks: exit status 0, whatever it sees. Where stdout is no terminal, one picture is printed.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Sequence
from datetime import datetime

import click
from rich.console import Console
from rich.text import Text

from holdfast import words
from holdfast.cli import console
from holdfast.cli.runs import find_run
from holdfast.cli.screen import taken_over
from holdfast.cli.watch import Watch
from holdfast.records import reader
from holdfast.report import entries, live
from holdfast.report.live_pictures import RunPicture, to_json
from holdfast.report.live_rows import Look
from holdfast.report.waiting import LOADER

_NOTHING = "No loader runs on this machine now."
_HINT = "A program of yours is seen here as soon as a loader with worker processes runs in it."


@click.command()
@click.argument("run", required=False)
@click.option(
    "--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print one picture, after two looks, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one picture as JSON, and end.")
def top(run: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Watch the loaders that run on this machine.

    Of every worker: what it is doing, with which sample, for how long, its memory against its limit, its restarts. Of
    every run: how fast it goes, whether training waits for it, and incidents as they come. RUN, or the beginning of
    its id, shows that one only. q or Ctrl-C quits.
    """
    watch = Watch(None if run is None else find_run(run))
    out = console.out()
    is_live = not (once or as_json) and out.is_terminal and not out.is_dumb_terminal
    with contextlib.suppress(KeyboardInterrupt):
        if is_live:
            _keep_showing(out, watch, interval)
        else:
            _look_twice(watch, interval)
            _print_json(watch) if as_json else _print(out, watch)
    if not as_json:
        _name_next(watch.pictures)


def _keep_showing(out: Console, watch: Watch, interval_s: float) -> None:
    is_ascii = out.options.ascii_only
    with taken_over(out) as screen:
        watch.look()
        looked_s = time.monotonic()
        while True:
            columns, lines = screen.size
            hint = "" if watch.pictures else f"{_HINT}\n{_last_run()}"
            screen.paint(
                live.screen(Look(columns, is_ascii), watch.pictures, lines, f"{datetime.now():%H:%M:%S}", hint)
            )
            if "q" in screen.wait_for_key(interval_s - (time.monotonic() - looked_s)).lower():
                return
            if time.monotonic() - looked_s >= interval_s:  # and not only because the size has changed
                watch.look()
                looked_s = time.monotonic()


def _look_twice(watch: Watch, interval_s: float) -> None:
    """Once where nothing runs: there is no rate to find out."""
    if any(not picture.is_over for picture in watch.look()):
        time.sleep(interval_s)
        watch.look()


def _print(out: Console, watch: Watch) -> None:
    if not watch.pictures:
        out.print(Text(f"{_NOTHING} {_last_run()}".rstrip()))
    for row in live.view(Look(out.width, out.options.ascii_only), watch.pictures):
        out.print(row, soft_wrap=True)


def _print_json(watch: Watch) -> None:
    runs = [to_json(picture) for picture in watch.pictures]
    console.print_json({"time": time.time(), "host": platform.node(), "runs": runs})


def _last_run() -> str:
    last = next(reader.all_runs(), None)
    if last is None:
        return ""
    script = entries.text(last.start, "script")
    return f"The last one was {last.id}{f' ({script})' if script else ''}."


def _name_next(pictures: Sequence[RunPicture]) -> None:
    talk = console.talk()
    troubled = [picture for picture in pictures if picture.incidents]
    slow = [picture for picture in pictures if picture.batches_per_s and picture.waiting.bottleneck == LOADER]
    if troubled:
        what = f"{words.plural(troubled[-1].incidents, 'incident')}: what happened, and what to do"
        console.name_next(talk, f"holdfast report {troubled[-1].id}", what)
    elif slow:
        console.name_next(talk, "holdfast tune MODULE:DATASET", "how many workers this dataset needs")
    elif pictures:
        console.name_next(talk, f"holdfast report {pictures[-1].id}", "the whole run")
    elif next(reader.all_runs(), None) is not None:
        console.name_next(talk, "holdfast report", "the last run")
    else:
        console.name_next(talk, "holdfast demo", "a loader to watch, from another terminal")

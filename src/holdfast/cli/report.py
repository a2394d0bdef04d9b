"""`holdfast report [RUN]`: what happened in a run, and what to do, as a page, as text or as data.

The path of the page, the text or the data goes to stdout, what is said about it to stderr. Exit status 1: the run had
incidents, lost something, was cut short, or its record is not whole.

Runs in: main process.
"""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path
from shlex import quote

import click
from rich.console import Console
from rich.text import Text

from holdfast import report as reports
from holdfast.cli import report_list
from holdfast.cli.console import HEALTHY, PROBLEMS, name_next, out, talk
from holdfast.cli.runs import find_run
from holdfast.records import reader
from holdfast.records.reader import Run
from holdfast.report import commands, data, html, keeping, model
from holdfast.report.model import Report
from holdfast.report.text import NARROWEST, WIDTH, text

_STDOUT = "-"


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("-o", "--output", metavar="FILE", help="Where to write; - is stdout. A page goes beside the records.")
@click.option("--text", "as_text", is_flag=True, help="Print plain text instead of writing a page.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--list", "lists", is_flag=True, help="List the runs there are.")
def report(  # noqa: PLR0917 (click gives them by name)
    run_id: str | None, output: str | None, as_text: bool, as_json: bool, opens: bool, lists: bool
) -> None:
    """Tell what happened in a run, and what to do: the last one, or RUN.

    RUN is the id of a run, its beginning, that of an incident (7f3a.2), or the file of a record. The page is one HTML
    file that needs neither a network nor a script; its path is printed.
    """
    _check(run_id, output, as_text=as_text, as_json=as_json, opens=opens, lists=lists)
    if lists:
        report_list.print_runs(as_json)
        return
    run = _run(run_id)
    told = model.report_of(run)
    if as_json:
        _print_or_save(output, json.dumps(data.data(told), indent=1, allow_nan=False) + "\n")
    elif as_text:
        _print_or_save(output, text(told, _width(output)))
    else:
        _page(run, told, output, opens)
    if not as_json:
        _say_next(talk(), told, opens, run_id if run_id is not None and _is_file(run_id) else told.run_id)
    sys.exit(HEALTHY if told.headline.is_healthy else PROBLEMS)


def _check(run_id: str | None, output: str | None, *, as_text: bool, as_json: bool, opens: bool, lists: bool) -> None:
    """What does not go together."""
    if as_text and as_json:
        raise click.UsageError("--text and --json are two forms of the same: give one of them.")
    if opens and (as_text or as_json or output == _STDOUT):
        raise click.UsageError("--open shows the page in a browser: leave out --text, --json and -o -.")
    if lists and (run_id is not None or output is not None or as_text or opens):
        raise click.UsageError("--list is about all runs: give it alone, or with --json.")


def _run(wanted: str | None) -> Run:
    """By its id, that of an incident of it (7f3a.2), or from a file that somebody handed on."""
    if wanted is None or not _is_file(wanted):
        return find_run(wanted and wanted.partition(".")[0])
    try:
        return reader.read(wanted)
    except OSError as error:
        raise click.UsageError(f"RUN: the record {wanted} cannot be read: {error.strerror or error}.") from None


def _is_file(wanted: str) -> bool:
    return wanted.endswith(".jsonl") or Path(wanted).name != wanted


def _page(run: Run, told: Report, output: str | None, opens: bool) -> None:
    if output == _STDOUT:
        _echo(html.page(told))
        return
    try:
        path = reports.write(run, output)
    except OSError as error:
        place = "beside the records" if output is None else f"to {output}"
        raise click.UsageError(
            f"The page cannot be written {place}: {error.strerror or error}. Name another file: -o FILE."
        ) from None
    talk().print(Text(told.headline.title, style="bold green" if told.headline.is_healthy else "bold red"))
    _echo(f"{path}\n")
    if opens and not webbrowser.open(path.absolute().as_uri()):
        talk().print("No browser was found on this machine: copy the file to one that has one.")


def _print_or_save(output: str | None, said: str) -> None:
    if output is None or output == _STDOUT:
        _echo(said)
        return
    try:
        keeping.save(said, Path(output))
    except OSError as error:
        raise click.UsageError(f"-o {output} cannot be written: {error.strerror or error}.") from None
    _echo(f"{output}\n")


def _echo(said: str) -> None:
    """Whatever stdout can take: the C locale of a container has no µ."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(said.encode(encoding, "backslashreplace").decode(encoding), nl=False)


def _width(output: str | None) -> int:
    """Of the terminal, where that is narrower than a page of text."""
    console = out()
    return min(max(console.width, NARROWEST), WIDTH) if output is None and console.is_terminal else WIDTH


def _say_next(console: Console, told: Report, opens: bool, named: str) -> None:
    """`named`: how the run is told again. What somebody handed on is not among the runs here, and is not replayed."""
    replays = {group.number: replay for group in told.incidents.groups if (replay := commands.replay(told, group))}
    worst = [remedy.group for remedy in told.headline.remedies if remedy.group in replays]
    if replays and told.is_found:
        name_next(console, replays[worst[0] if worst else min(replays)], "load that one sample alone")
    elif not opens:
        name_next(console, f"holdfast report {quote(named)} --open", "look at it in a browser")
    else:
        name_next(console, "holdfast doctor", "what on this machine would kill a loader")

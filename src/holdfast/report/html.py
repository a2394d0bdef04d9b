"""A report as one HTML file: nothing outside it, no script in it, the same in a mail, on a server and in ten years.

    Report ──► charts (geometry) ──► templates (autoescape) ──► text, made smaller until it is below MAX_BYTES

A policy in the page (Content-Security-Policy) forbids every script and every request: should a text of a record ever
get past the escaping, it still could do nothing.

Runs in: wherever reports are made.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib

import jinja2
import markupsafe

from holdfast import words
from holdfast.report import clean, commands, families, losses, remedies
from holdfast.report.charts import panel, stages, timeline, usage
from holdfast.report.incidents import Incidents
from holdfast.report.model import Report

MAX_BYTES = 1_400_000
_MOST_ROWS = 300
"""Of the table of what was skipped; the files to download have more."""
_MOST_IN_FILES = 8000
"""Where the page gets too large: before that they have all."""


def page(report: Report) -> str:
    """The whole file."""
    text = _render(report)
    longest, most = clean.LONGEST_BLOCK, _MOST_IN_FILES
    while len(text.encode()) > MAX_BYTES and most > 1:
        longest, most = longest // 2, most // 2
        text = _render(_smaller(report, longest, most))
    return text


def _render(report: Report) -> str:
    style = _environment().get_template("page.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            style=style,
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            timeline=timeline.timeline_chart(report.timeline, report.nouns.worker),
            bar_height=timeline.BAR,
            memory=usage.memory_panels(report.memory, report.duration_s),
            rates=usage.rate_panels(report.pace, report.duration_s, report.nouns.item),
            stages=stages.stage_bars(report.pace, report.duration_s),
            frame=panel,
            shapes=timeline.SHAPES,
            families=families.TITLES,
            csv_url=data_url("text/csv", losses.as_csv(report.losses)),
            skipped_file_url=data_url("application/jsonl", report.losses.skipped_file),
            replay=functools.partial(commands.replay, report),
            replay_does=commands.replay_does(report),
            remedy=remedies.remedy_of,
            most_rows=_MOST_ROWS,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("holdfast.report"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": words.duration, "size": words.size, "limit": words.limit, "code": with_code}
    environment.globals |= {"plural": words.plural, "share": words.share, "times": words.times}
    return environment


def with_code(text: str) -> markupsafe.Markup:
    """What stands between backticks is code; all of it is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is without a partner
        return markupsafe.escape(text)
    code = markupsafe.Markup("<code>{}</code>")
    return markupsafe.Markup().join(code.format(part) if number % 2 else part for number, part in enumerate(parts))


def data_url(kind: str, text: str) -> str:
    """A link to this text, to be saved without a network or a script."""
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def _smaller(report: Report, longest: int, most: int) -> Report:
    """With shorter stacks, fewer rows and, in the end, fewer groups: what goes is counted."""
    groups = report.incidents.groups
    shown = tuple(
        dataclasses.replace(
            group,
            stack=clean.block(group.stack, longest),
            members=group.members[:most],
            samples=group.samples[:most],
        )
        for group in groups[:most]
    )
    gone = [(group.cause, group.count) for group in groups[most:]]
    left = Incidents(
        total=report.incidents.total,
        groups=shown,
        not_shown=(*report.incidents.not_shown, *gone)[:most],
        left_out=report.incidents.left_out[:most],
    )
    lines = report.losses.skipped_file.splitlines(keepends=True)[: most + 1]
    lost = losses.Losses(report.losses.total, report.losses.skipped[:most], "".join(lines))
    return dataclasses.replace(report, incidents=left, losses=lost)

"""Two captures side by side as one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.report import diff_view as view
from ai_prof.report import gaps
from ai_prof.report.html import template

if TYPE_CHECKING:
    from markupsafe import Markup

    from ai_prof.timeline.diff import Diff

KERNELS = 200


def render(diff: Diff) -> str:
    """Return the page; it needs no script and no network."""
    kernels = view.kernel_rows(diff)
    return template("diff.html.j2").render(
        diff=diff,
        view=view,
        bars=_bars(diff),
        kernels=kernels[:KERNELS],
        hidden_kernels=max(0, len(kernels) - KERNELS),
    )


def _bars(diff: Diff) -> Markup | None:
    if diff.unit != "iteration":
        return None
    sides = []
    for label, values in (("A", [p.before_ms for p in diff.parts]), ("B", [p.after_ms for p in diff.parts])):
        named = dict(zip((part.name for part in diff.parts), values, strict=True))
        work = named.pop("kernels") + named.pop("copies")
        parts = {gaps.WORK: work, **{cause: ms for cause, ms in named.items() if ms}}
        sides.append(gaps.Split(label, sum(values), parts))
    return gaps.bars(sides, "both captures")

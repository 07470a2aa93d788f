"""Figures and pages: they draw the numbers they are given and compute none."""

from calibrant.report.audit_page import write_audit
from calibrant.report.figures import (
    draw_confidence_histogram,
    draw_logit_scatter,
    draw_reliability,
    draw_risk_coverage,
)
from calibrant.report.lens import draw_lens
from calibrant.report.page import Section, write_page

__all__ = [
    "Section",
    "draw_confidence_histogram",
    "draw_lens",
    "draw_logit_scatter",
    "draw_reliability",
    "draw_risk_coverage",
    "write_audit",
    "write_page",
]

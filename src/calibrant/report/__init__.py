"""Figures and pages: they draw the numbers they are given and compute none."""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names

if TYPE_CHECKING:
    from calibrant.report.audit_page import write_audit
    from calibrant.report.compare_page import write_comparison
    from calibrant.report.comparison_table import PrintedNumber, render_comparison_table
    from calibrant.report.data_figures import Cell, draw_contact_sheet, draw_data_summary
    from calibrant.report.figures import (
        draw_confidence_histogram,
        draw_logit_scatter,
        draw_reliability,
        draw_risk_coverage,
    )
    from calibrant.report.lens import draw_lens
    from calibrant.report.page import Section, is_page, write_page
    from calibrant.report.selective_figures import (
        draw_errors_by_source,
        draw_max_logit_given_msp,
        draw_risk_coverage_by_method,
    )
    from calibrant.report.style import figure_path
    from calibrant.report.tables import framed, labelled
    from calibrant.report.text import DASH, MINUS, TIMES, escape, name

__all__ = [
    "Cell",
    "Section",
    "draw_confidence_histogram",
    "draw_contact_sheet",
    "draw_data_summary",
    "draw_errors_by_source",
    "draw_lens",
    "draw_logit_scatter",
    "draw_max_logit_given_msp",
    "draw_reliability",
    "draw_risk_coverage",
    "draw_risk_coverage_by_method",
    "write_audit",
    "write_comparison",
    "write_page",
]

_FIGURES = ("data_figures", "figures", "lens", "selective_figures")
__getattr__, __dir__ = lazy_names(
    __name__, extras={f"calibrant.report.{module}": ("train", "matplotlib") for module in _FIGURES}
)

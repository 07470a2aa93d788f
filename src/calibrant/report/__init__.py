"""Figures and pages: they draw the numbers they are given and compute none.

A page is a module of `html`, named after what it shows. It fills sections with `html.tables` and `html.charts` (drawn
with `html.svg`), and `html` itself writes them as one file. Figures for papers are in `figures`.
"""

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names

if TYPE_CHECKING:
    from calibrant.report.figures import figure_path, in_style, new_axes, new_figure, save_figure
    from calibrant.report.figures.audit import (
        draw_confidence_by_objectness,
        draw_confidence_histogram,
        draw_logit_scatter,
        draw_reliability,
        draw_reliability_zoom,
        draw_risk_coverage,
    )
    from calibrant.report.figures.images import (
        Cell,
        MapRow,
        contact_sheet,
        draw_activation_maps,
        draw_contact_sheet,
        draw_data_summary,
        draw_maps,
        draw_peaks,
        overlay_map,
    )
    from calibrant.report.figures.losses import (
        Mark,
        draw_lens,
        draw_regularisation,
        draw_regularisation_by_error,
        draw_regulariser,
        draw_simplex,
        draw_sweep,
    )
    from calibrant.report.figures.selective import (
        draw_errors_by_source,
        draw_max_logit_given_msp,
        draw_normalised_given_max_logit,
        draw_rank_statistics,
        draw_risk_coverage_by_method,
    )
    from calibrant.report.html import PaperPart, write_paper_page
    from calibrant.report.html.activation_page import NO_BOXES, write_activation_page
    from calibrant.report.html.audit_page import write_audit
    from calibrant.report.html.comparison_page import write_comparison
    from calibrant.report.html.data_page import ContactSheet, check_page_folder, write_data_page
    from calibrant.report.html.demo_page import write_demonstration
    from calibrant.report.html.maps_page import ImageMaps, MethodMaps, label_colours, write_maps_page
    from calibrant.report.html.tables import PrintedNumber, framed, labelled, render_comparison_table
    from calibrant.report.html.watch_page import write_watch
    from calibrant.report.junit import workflow_lines, write_junit
    from calibrant.report.text import DASH, MINUS, TIMES, escape, name, typeset

__all__ = [
    "Cell",
    "ContactSheet",
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
    "write_data_page",
]

__getattr__, __dir__ = lazy_names(__name__, extras={"calibrant.report.figures": ("train", "matplotlib")})

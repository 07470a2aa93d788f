"""Figures and pages: they draw the numbers they are given and compute none."""

from calibrant.report.lens import draw_lens, write_lens_page

__all__ = ["draw_lens", "write_lens_page"]

"""Figures and pages: they draw the numbers they are given and compute none."""

from calibrant.report.lens import draw_lens
from calibrant.report.page import Section, write_page

__all__ = ["Section", "draw_lens", "write_page"]

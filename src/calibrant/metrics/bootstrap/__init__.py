"""Confidence intervals of metrics by the bootstrap."""

"""The numbers of finished runs, as one table in long format."""

from calibrant.experiments.results.results import ResultRow, Results

__all__ = ["ResultRow", "Results"]

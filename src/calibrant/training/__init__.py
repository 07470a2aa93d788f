"""Models on data: what a classifier says about a data set."""

from calibrant.training.predicting import predict

__all__ = ["predict"]

"""Prediction sets: `conformal` scores and quantiles, the fitted `prediction_sets`, and their `counts`."""

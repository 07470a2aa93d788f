"""The sketch: a fixed grid of cells, one pass over the predictions, every top-label metric from the counts."""

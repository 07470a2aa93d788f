"""Tables and figures of ALS."""

"""Maps by the networks of several runs: predictions pixel by pixel, and where the networks look."""

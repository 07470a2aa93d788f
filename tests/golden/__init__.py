"""Golden runs: the main commands on small committed inputs, compared by value; `./dev golden --write` renews them."""

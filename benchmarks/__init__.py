"""Speed and memory against the floor, as ratios within one run: `./dev bench` lists them."""

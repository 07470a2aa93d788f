"""Valid files of every format, mutated: each must be read or refused in one sentence. `./dev fuzz` runs it for long."""

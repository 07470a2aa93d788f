"""``python -m calibrant`` is the command ``calibrant``."""

from calibrant.cli import main

if __name__ == "__main__":
    main()

"""Entry point of `python -m peasy`."""

from peasy.cli import main

if __name__ == "__main__":
    main()

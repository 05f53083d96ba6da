"""`python -m peasy` is `peasy`."""

from peasy.cli import main

if __name__ == "__main__":
    main()

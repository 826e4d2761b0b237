"""`python -m monotau` is `monotau`."""

from monotau.cli import main

if __name__ == "__main__":
    main()

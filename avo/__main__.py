"""`python -m avo` is `avo`: for environments whose scripts are not on the path."""

from avo.cli import main

if __name__ == "__main__":
    main()

"""`python -m tiercel` is the command `tiercel`."""

from tiercel.tools.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

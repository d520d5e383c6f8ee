"""What the interpreter of a compile worker starts with: `python -I worker_main.py PATHS`, its socket as standard input.

In: one argument, the folders that packages may be imported from, as JSON. The current directory and the folder of the
user's script are never among those searched first: a `json.py` of theirs must not run here.
"""

import sys


def main() -> None:
    """Set the paths, then serve."""
    import json

    own, given = sys.path, json.loads(sys.argv[1])
    packages = [p for p in own if p.endswith(("site-packages", "dist-packages"))]
    standard = [p for p in own if p not in packages]
    sys.path[:] = list(dict.fromkeys([*standard, *given["first"], *packages, *given["then"]]))
    from tiercel.hotpath.child import serve

    serve()


if __name__ == "__main__":
    main()

"""What the interpreter of a compile worker starts with: `python -I worker_main.py PATHS`, its socket as standard input.

In: one argument, the folders that packages may be imported from, as JSON. The current directory and the folder of the
user's script are never among those searched first: a `json.py` of theirs must not run here.
"""

import sys


def ordered(own: list[str], standard: str, first: list[str], then: list[str]) -> list[str]:
    """Return the folders to search: the standard library, what the parent runs from, the rest of ours, of the parent's.

    Another checkout that is installed in place (a folder of a .pth file) is among `own`, and not what the parent runs.

    Args:
        own: the folders this interpreter started with.
        standard: the folder of the standard library; its archive and its `lib-dynload` lie beside and in it.
        first, then: the parent's.
    """
    archive = standard.rpartition("/")[0] + "/python"
    library = [
        p
        for p in own
        if not p.endswith(("site-packages", "dist-packages"))
        and (p == standard or p.startswith(standard + "/") or (p.startswith(archive) and p.endswith(".zip")))
    ]
    return list(dict.fromkeys([*library, *first, *own, *then]))


def main() -> None:
    """Set the paths, then serve."""
    import json
    import os

    given = json.loads(sys.argv[1])
    sys.path[:] = ordered(sys.path, os.path.dirname(os.__file__), given["first"], given["then"])
    from tiercel.hotpath.child import serve

    serve()


if __name__ == "__main__":
    main()

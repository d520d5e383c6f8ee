"""The loop form to machine code: the calling convention, the flat blob, and a code generator per kind of processor."""

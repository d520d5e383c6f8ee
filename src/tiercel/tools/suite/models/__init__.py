"""What the cases compute, written as users of each peer write it: a module per peer, imported in its child only.

In: arrays of the peer. Out: its functions and modules. Nothing here is imported when `tiercel bench` starts.
"""

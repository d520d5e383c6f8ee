"""The benchmark suite: Tiercel and what people use instead, on the same work, in one run.

In: names of cases and peers. Out: a record (plain data, see `record`), drawn as tables and plots. `cases` say what is
computed, `models` how each peer computes it, `peers` how each peer is started and held; `child` runs one (case, peer)
in a process of its own, `process` is the other end of it, `schedule` decides whose turn it is, `agreement` compares
results, `statistics` makes numbers of times.

It is part of the package, not of the checkout: `pip install tiercel[bench]` is all that somebody needs who wants to see
these numbers on their own machine. No module here imports a peer before its child asks for it.
"""

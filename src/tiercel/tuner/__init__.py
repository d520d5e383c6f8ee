"""Which way of carrying out a product of matrices is fastest on this machine: see docs/performance.md, "Tuner".

`space` names what can be chosen, `predictor` ranks it by what this machine has measured so far, `measure` takes times,
`session` brings these together under a budget, `store` keeps what came of it between processes.
"""

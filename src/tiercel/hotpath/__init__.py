"""The hot path: when a region is compiled, where that happens, and what is trusted of the result.

`policy` says when a region is hot; `service` compiles it; between the two stand `cache` (kernels on disk), `worker`
(the process that compiles, fed over a socket with `protocol` frames of `wire` tables), `jobs` (what runs there) and
`validate` (a kernel is compared with the interpreter before anybody may run it).
"""

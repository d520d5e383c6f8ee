"""NumPy implementations of operators that NumPy has no function for; one module a family.

In: ndarrays, NumPy scalars and static attributes. Out: fresh ndarrays. They import nothing of Tiercel but `dtypes` and
each other, and hold the meaning of their operators: kernels are validated against them.
"""

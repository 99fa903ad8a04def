"""Numba kernels: pure functions over NumPy arrays that never raise."""

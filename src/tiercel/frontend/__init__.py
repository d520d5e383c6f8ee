"""Frontends: each reads a foreign form of a program and drives the Builder. They import neither `ops` nor `nn`."""

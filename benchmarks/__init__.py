"""Benchmarks: holdfast's loader against torch's, in-process loading and the ceiling. Run `python -m benchmarks --help`.

Speed is measured here and nowhere else: no test asserts it. Every figure that counts is a ratio of two measurements
made next to each other in one run, because machines are noisy.
"""

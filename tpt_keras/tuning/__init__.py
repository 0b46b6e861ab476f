"""Searches over the variants, with keras-tuner."""

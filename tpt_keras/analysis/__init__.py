"""Analyses of trained models: attention, roles, representations, accuracy."""

"""Asking an exported model. Nothing is imported here."""

"""Figures and pages of trainings, searches and analyses."""

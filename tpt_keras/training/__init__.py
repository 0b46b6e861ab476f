"""Training and evaluation: loss, metrics, schedules, the fit loop."""

"""What `--distribution` may be, on every backend."""

DISTRIBUTIONS = ("none", "mirrored", "multi_worker_mirrored")

"""Export to SavedModel, and asking one."""

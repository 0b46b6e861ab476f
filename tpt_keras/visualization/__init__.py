"""Pictures of trainings and models."""

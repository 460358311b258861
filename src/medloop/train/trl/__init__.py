"""TRL's trainers, made resumable."""

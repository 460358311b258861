"""The folder of a training run: checkpoints, cost estimate, publication."""

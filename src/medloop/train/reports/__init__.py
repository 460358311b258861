"""What a trained model's report says: accuracies, intervals, baselines, plots."""

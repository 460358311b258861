"""Numbers about the feedback: volume, agreement, rater drift, alerts, plots."""

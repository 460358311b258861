"""The weekly inspection: draw answers for a medical reviewer, and import the reviewer's verdicts."""

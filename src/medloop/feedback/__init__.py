"""What people say about answers: taken in, measured, asked for, and turned into a reason to train again."""

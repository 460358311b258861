"""What gives an answer a number, with its reason, author and version; or says that the number is missing."""

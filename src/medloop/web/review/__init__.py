"""What the pages for judging answers (queue, rate, compare, correct) share."""

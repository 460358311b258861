"""Training jobs: a queue of folders, one worker per job, a supervisor that starts workers and notices their death."""

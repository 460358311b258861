"""Bring a version of the model live on the model servers, keep it there, and take it back when it turns bad."""

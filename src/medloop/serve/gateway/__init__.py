"""The gateway in front of model servers: who answers, what is checked, what is remembered about each answer."""

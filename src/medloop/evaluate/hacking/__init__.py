"""Signs of reward hacking: the panel over rounds of training, and null probes."""

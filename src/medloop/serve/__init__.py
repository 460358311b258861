"""The live assistant: the embedded model server, the gateway in front of any server, and the agent."""

"""Sampling for RL: our own sampler, its fast decode step, CUDA graphs, and a vLLM server instead."""

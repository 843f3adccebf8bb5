"""Measurements. Ratios, taken in one process in alternating runs; nothing here is a test."""

"""Decisions: no task, no socket, no clock; told the time, asked for the next deadline."""

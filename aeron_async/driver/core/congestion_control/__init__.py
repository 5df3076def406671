"""Congestion control: how a receiver chooses the window it advertises."""

"""Aeron for asyncio."""

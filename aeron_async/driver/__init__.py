"""The media driver: sender, receiver and conductor as coroutine tasks on one event loop."""

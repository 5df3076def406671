"""Metrics of a driver, for Prometheus and OpenTelemetry, made of its statistics."""

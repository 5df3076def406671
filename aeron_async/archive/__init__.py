"""Recording and replaying streams, in Aeron Archive's own format."""

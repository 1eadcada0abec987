"""Settings that a job leaves open: what they become on this device, for these rows, after earlier runs."""

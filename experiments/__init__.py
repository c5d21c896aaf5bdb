"""Published experiments to run again, and studies of our own."""

"""The flags of the run as a whole: a module for each topic, whose functions add flags to a group of the parser."""

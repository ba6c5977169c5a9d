"""From signals to findings, and from findings to incidents."""

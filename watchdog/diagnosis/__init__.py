"""The pure step: findings, incidents and readings of a target and of a fleet."""

"""What earlier experiments on record mean for this one."""

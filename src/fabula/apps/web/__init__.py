"""What Fabula's servers share: the guard at the door, the one error shape, how they start, and their page files."""

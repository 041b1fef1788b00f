"""Millions of rows filled in, by this process, by worker processes or by a cluster, into numbered shards."""

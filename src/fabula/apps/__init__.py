"""Programs on top of `fabula.api`: the studio, the judging kit, servers for other programs, bulk filling."""

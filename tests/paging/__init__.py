"""Pages, tokens and restarts put to the proof: a nasty service, a machine that reads it, mutants, kill -9."""

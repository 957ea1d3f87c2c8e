package app

// SweepEvery is how often Watch compares what exists with the log.
const SweepEvery = sweepEvery

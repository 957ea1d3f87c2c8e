// Package baddays runs the whole program on the days when something else fails: the
// log's storage is full, an event can't be read, two builds run at once, Postgres is
// full or slow, the clock jumps, everything starts at once.
package baddays

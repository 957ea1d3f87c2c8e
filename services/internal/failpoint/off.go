//go:build !failpoint

package failpoint

// Hit is a named place where a test may kill the process; here it does nothing.
func Hit(string) {}

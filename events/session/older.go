//go:build older

package session

// The older of two builds that run side by side, for tests: it doesn't know one of the
// types of event that the newer writes.
func init() { delete(registry, TypeExtended) }

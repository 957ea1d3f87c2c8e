package remote_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// BenchmarkWay is what the way over NATS adds to a start: a claim, a bind and a wait
// for a sandbox that is there, by the host's own driver and by a replica's.
func BenchmarkWay(b *testing.B) {
	in := install(b)
	remote := in.replica()
	c := claimOf("s-1", 5)
	drivertest.Start(b, remote, c)
	for _, way := range []struct {
		name   string
		driver driver.Driver
	}{{"direct", in.driver}, {"remote", remote}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				drivertest.Start(b, way.driver, c)
			}
		})
	}
}

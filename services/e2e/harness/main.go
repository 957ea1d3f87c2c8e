package harness

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// Main is a package's TestMain: tests share one Postgres server, in which each has
// a database of its own, and none leaves a goroutine.
func Main(m *testing.M) { goleak.VerifyTestMain(tidy{pgtest.Main(m)}) }

// tidy closes the connections that HTTP clients keep, which are no leak.
type tidy struct{ tests interface{ Run() int } }

// Run implements goleak's TestingM.
func (t tidy) Run() int {
	code := t.tests.Run()
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.CloseIdleConnections()
	}
	return code
}

// SharedPostgres uses a database on the package's server (see Main) instead of a
// server of the test's own, which takes a second to make.
func SharedPostgres(t testing.TB) Option {
	t.Helper()
	dsn := pgtest.New(t)
	return func(c *dev.Config) { c.PostgresURL = dsn }
}

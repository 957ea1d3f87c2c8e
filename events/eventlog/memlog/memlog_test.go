package memlog_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/eventlogtest"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	genesis := eventlog.Genesis{LogID: "log-of-the-test", Epoch: "e1"}
	log := memlog.New(genesis)
	eventlogtest.Run(t, eventlogtest.Harness{
		Open:    func(*testing.T) (a, b eventlog.Log) { return log, log },
		Plant:   func(_ *testing.T, subject string, raw []byte) uint64 { return log.Plant(subject, raw) },
		Genesis: genesis,
		Checks:  200,
	})
}

package memoutput_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/output/outputtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	var s *memoutput.Stream
	outputtest.Run(t, outputtest.Harness{
		Open:   func(*testing.T) output.Stream { s = memoutput.New(); return s },
		Expire: func(_ *testing.T, before uint64) { s.Expire(before) },
	})
}

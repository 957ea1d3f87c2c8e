package baddays_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// small is a file system of its own under a folder of the data directory.
type small struct {
	t   *testing.T
	dir string
}

// smallDisk puts one there, which takes root.
func smallDisk(t *testing.T, folder string, size string) (*small, harness.Option) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a small disk can only be made by root")
	}
	s := &small{t: t}
	return s, func(c *dev.Config) {
		s.dir = filepath.Join(c.DataDir, folder)
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
			t.Skipf("SKIPPED: no file system can be mounted here: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(s.dir, 0); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
	}
}

const filler = "filler"

// fill leaves so many bytes free, or none.
func (s *small) fill(leave uint64) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, filler), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for {
		var fs unix.Statfs_t
		if err := unix.Statfs(s.dir, &fs); err != nil {
			s.t.Fatal(err)
		}
		free := fs.Bavail * uint64(fs.Bsize)
		if free <= leave {
			return
		}
		info, err := f.Stat()
		if err != nil {
			s.t.Fatal(err)
		}
		if err := unix.Fallocate(int(f.Fd()), 0, info.Size(), int64(free-leave)); err != nil && !errors.Is(err, unix.ENOSPC) {
			s.t.Fatal(err)
		}
	}
}

// empty gives the room back.
func (s *small) empty() {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, filler)); err != nil {
		s.t.Fatal(err)
	}
}

// typed are the answers that a command may get while the log can't be written.
var typed = []api.Code{api.CodeStorageLow, api.CodeNotReady, api.CodeOutcomeUnknown, api.CodeProjectionBehind}

// The log's disk fills up: first the brake is set, then nothing can be written at all.
// Each command gets an answer that says so in bounded time; what was accepted is
// there afterwards, what was refused is not, and everything goes on by itself.
func TestLogDiskFull(t *testing.T) {
	t.Parallel()
	disk, on := smallDisk(t, "nats", "3g")
	h := harness.Start(t, harness.SharedPostgres(t), on)
	freely(h)
	var sessions [3]*api.Session
	for i := range sessions {
		sessions[i] = h.CreateOf("alice", api.CreateSession{Runtime: "free", Message: "echo before"})
		h.AwaitFact(sessions[i].ID, "its run is over", runs(1))
	}

	disk.fill(100 << 20)
	harness.Eventually(t, "the brake is set", func() bool { return strings.Contains(part(t, h, "storage").Detail, "disk") })
	_, err := h.Client("alice").SendMessageWithResponse(h.Context(), sessions[0].ID, nil, api.SendMessage{Content: "pwd"})
	low(t, err)

	disk.fill(0)
	overflow(t, h)
	begun := time.Now()
	_, err = h.Client("alice").TerminateSessionWithResponse(h.Context(), sessions[0].ID, nil, api.TerminateSession{})
	refusedAs(t, err, typed)
	_, err = h.Client("alice").SendMessageWithResponse(h.Context(), sessions[1].ID, nil, api.SendMessage{Content: "echo never"})
	refusedAs(t, err, typed)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("two commands waited %s for their answers", took)
	}

	disk.empty()
	harness.Eventually(t, "it is ready and the brake is off", func() bool {
		r := readiness(t, h)
		return r.Ready && !part(t, h, "storage").Degraded
	})
	for _, s := range sessions {
		if got := harness.Of[session.MessageReceived](h.Facts(s.ID)); len(got) != 1 {
			t.Errorf("%s has %d messages, one was accepted", s.ID, len(got))
		}
	}
	h.Send("alice", sessions[1].ID, "echo after")
	h.AwaitFact(sessions[1].ID, "its next run is over", runs(2))
	if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), sessions[2].ID, nil, api.TerminateSession{}); err != nil {
		t.Errorf("terminate: %v", err)
	}
	h.AwaitPhase(sessions[2].ID, api.SessionPhaseEnded)
}

// overflow appends, past the brake, until the log can't be written.
func overflow(t *testing.T, h *harness.Holdfast) {
	t.Helper()
	nc, js := as(t, h, broker.UserSession)
	log, err := natslog.New(js, nc, natslog.Options{AttemptTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	records, err := session.Records(events.ServiceSession, session.Created{Owner: "filler", Config: []byte(`"` + strings.Repeat("x", 200_000) + `"`)})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := log.Append(ctx, "ev.filler.s."+events.RandomID(events.PrefixSession), events.Envelope{
			Command: events.RandomID(events.PrefixCommand), Actor: events.Actor{Kind: events.ActorService, ID: "filler"},
			Service: events.ServiceSession, N: 1, Time: time.Now().UTC(), Events: records,
		})
		cancel()
		if err != nil {
			return
		}
	}
	t.Fatal("the log's disk doesn't fill up")
}

// refusedAs wants one of some codes.
func refusedAs(t *testing.T, err error, codes []api.Code) {
	t.Helper()
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		t.Errorf("not refused: %v", err)
		return
	}
	if !slices.Contains(codes, refused.Problem.Code) {
		t.Errorf("refused with %s: %s", refused.Problem.Code, refused.Problem.Detail)
	}
}

package broker_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// backup is a stream as NATS hands it out: how it was, and its bytes in pieces.
type backup struct {
	server.JSApiStreamRestoreRequest
	pieces [][]byte
}

// The installer can back up the log and put it back elsewhere, as docs/kubernetes.md says:
// with the protocol of the `nats` program, also where a backup is larger than what NATS sends
// ahead of the receiver.
func TestInstallerBacksUpAndRestores(t *testing.T) {
	t.Parallel()
	from, to := brokertest.Start(t), brokertest.Start(t)
	large := make([]byte, 64<<10) // random, since a backup is compressed
	_, _ = rand.Read(large)
	if _, err := from.JS(broker.UserSession).Publish(t.Context(), "ev.default.s.s-1", large); err != nil {
		t.Fatal(err)
	}
	saved := save(t, from.NC(broker.UserInstaller), events.StreamEvents)
	if len(saved.pieces) < 16 {
		t.Fatalf("the backup has %d pieces: nothing of its flow was tried", len(saved.pieces))
	}

	installer := to.JS(broker.UserInstaller)
	if err := installer.DeleteStream(t.Context(), events.StreamEvents); err != nil {
		t.Fatal(err)
	}
	restore(t, to.NC(broker.UserInstaller), saved)
	genesis, err := install.Run(t.Context(), installer)
	if err != nil || genesis != from.Genesis {
		t.Errorf("after the restore the log is %+v (%v), want %+v", genesis, err, from.Genesis)
	}
	if got := lastSeq(t, installer, events.StreamEvents); got != 2 {
		t.Errorf("the restored log ends at %d, want 2", got)
	}
}

func save(t *testing.T, nc *nats.Conn, stream string) (b backup) {
	t.Helper()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	var answer server.JSApiStreamSnapshotResponse
	ask(t, nc, fmt.Sprintf(server.JSApiStreamSnapshotT, stream),
		server.JSApiStreamSnapshotRequest{DeliverSubject: inbox, ChunkSize: 1 << 10, WindowSize: 4 << 10}, &answer)
	if answer.Error != nil {
		t.Fatal(answer.Error)
	}
	b.Config, b.State = *answer.Config, *answer.State
	for {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("after %d pieces: %v", len(b.pieces), err)
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "204" && status != "" {
				t.Fatalf("after %d pieces: %v", len(b.pieces), m.Header)
			}
			return b
		}
		b.pieces = append(b.pieces, m.Data)
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func restore(t *testing.T, nc *nats.Conn, b backup) {
	t.Helper()
	var begun server.JSApiStreamRestoreResponse
	ask(t, nc, fmt.Sprintf(server.JSApiStreamRestoreT, b.Config.Name), b.JSApiStreamRestoreRequest, &begun)
	if begun.Error != nil {
		t.Fatal(begun.Error)
	}
	for _, piece := range append(b.pieces, nil) { // an empty one ends it
		m, err := nc.Request(begun.DeliverSubject, piece, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var end server.JSApiStreamCreateResponse
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &end) == nil && end.Error != nil {
			t.Fatal(end.Error)
		}
	}
}

// ask sends a request of JetStream's API, and reads its answer.
func ask(t *testing.T, nc *nats.Conn, subject string, request, answer any) {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request(subject, body, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		t.Fatal(err)
	}
}

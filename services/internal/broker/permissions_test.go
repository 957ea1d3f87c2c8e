package broker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
)

var (
	deciders = []broker.User{broker.UserSession, broker.UserWorkload, broker.UserPolicy, broker.UserRunner}
	readers  = []broker.User{broker.UserGateway, broker.UserProjector}
	nobody   = []broker.User{}
)

func only(us ...broker.User) []broker.User { return us }

func and(us []broker.User, more ...broker.User) []broker.User {
	return append(slices.Clone(us), more...)
}

// attempts are subjects to publish to, and who may. The installer's rights on the
// JetStream API are tried where it uses them, in package install.
var attempts = []struct {
	subject string
	may     []broker.User
}{
	// Events: only on sessions do several write.
	{"ev.default.s.s-1", deciders},
	{"ev.default.runtime.shell", only(broker.UserWorkload)},
	{"ev.default.policy.main", only(broker.UserPolicy)},
	{"ev.default.provider.x", nobody},
	{"ev.default.s.s-1.more", nobody},
	{"ev.default.s", nobody},
	{"ev.genesis", only(broker.UserInstaller)},

	// What agents stream.
	{"out.default.s-1", only(broker.UserRunner)},
	{"out.default", nobody},

	// What is too large for a message: on the same names as what refers to it.
	{"blob.default.s.s-1.hash.0", deciders},
	{"blob.default.runtime.shell.hash.0", only(broker.UserWorkload)},
	{"blob.default.policy.main.hash.0", only(broker.UserPolicy)},
	{"blob.default.s.s-1", nobody},
	{"blob.default.other.x.hash.0", nobody},
	{"out.default.s-1.hash.0", only(broker.UserRunner)},
	{"transit.session.default.t-1.hash.0", only(broker.UserGateway, broker.UserSession)},
	{"transit.policy.default.t-1.hash.0", only(broker.UserGateway, broker.UserPolicy, broker.UserRunner)},
	{"transit.session.default", nobody},

	// Commands.
	{"cmd.session.default.create", only(broker.UserGateway, broker.UserSession)},
	{"cmd.session.default.note-activity", only(broker.UserGateway, broker.UserSession, broker.UserRunner)},
	{"cmd.workload.default.locate", only(broker.UserGateway, broker.UserWorkload, broker.UserRunner)},
	{"cmd.workload.default.runtime-apply", only(broker.UserGateway, broker.UserWorkload)},
	{"cmd.policy.default.propose", only(broker.UserGateway, broker.UserPolicy, broker.UserRunner)},
	{"cmd.policy.default.decide", only(broker.UserGateway, broker.UserPolicy)},
	{"cmd.runner.instance.i-1.ping", only(broker.UserRunner)},

	// Hosts and the workload service.
	{"host.local.do.claim", only(broker.UserWorkload)},
	{"host.local.do.hello", only(broker.UserWorkload, broker.UserHost)},
	{"host.local.ask.redeem", only(broker.UserHost)},
	{"host.local.tell.ended", only(broker.UserHost)},
	{"host.local.other", nobody},

	// Another's inbox, and the replies in it.
	{"_INBOX_gateway.x.y", nobody},
	{"_INBOX_session.x.y", nobody},

	// Streams and consumers: to make, change, empty or remove one is the installer's.
	{"$JS.API.STREAM.CREATE.MINE", only(broker.UserInstaller)},
	{"$JS.API.STREAM.UPDATE.EVENTS", only(broker.UserInstaller)},
	{"$JS.API.STREAM.PURGE.EVENTS", only(broker.UserInstaller)},
	{"$JS.API.STREAM.MSG.DELETE.EVENTS", only(broker.UserInstaller)},
	{"$JS.API.STREAM.PURGE.NONE", only(broker.UserInstaller)},
	{"$JS.API.STREAM.DELETE.NONE", only(broker.UserInstaller)},
	{"$JS.API.STREAM.SNAPSHOT.NONE", only(broker.UserInstaller)},
	{"$JS.API.STREAM.RESTORE.NONE", only(broker.UserInstaller)},
	{"$JS.SNAPSHOT.ACK.EVENTS.x.128.1", only(broker.UserInstaller)},
	{"$JS.SNAPSHOT.RESTORE.EVENTS.x", only(broker.UserInstaller)},
	{"$JS.API.CONSUMER.DURABLE.CREATE.EVENTS.mine", only(broker.UserInstaller)},
	{"$JS.API.CONSUMER.CREATE.EVENTS", only(broker.UserInstaller)},
	{"$JS.API.CONSUMER.CREATE.EVENTS.session", only(broker.UserInstaller)},
	{"$JS.API.CONSUMER.CREATE.EVENTS.session.ev.*.s.*", only(broker.UserInstaller)},
	{"$JS.API.CONSUMER.CREATE.EVENTS.tail", and(readers, broker.UserInstaller)},
	{"$JS.API.CONSUMER.CREATE.OUTPUT.tail", and(readers, broker.UserInstaller)},
	{"$JS.API.CONSUMER.CREATE.KV_PARKED.x.$KV.PARKED.policy.>", only(broker.UserPolicy, broker.UserInstaller)},
	{"$JS.API.CONSUMER.DELETE.EVENTS.tail", and(readers, broker.UserInstaller)},

	// Reading.
	{"$JS.API.STREAM.MSG.GET.EVENTS", and(and(deciders, readers...), broker.UserInstaller)},
	{"$JS.API.STREAM.INFO.EVENTS", and(and(deciders, readers...), broker.UserInstaller)},
	{"$JS.API.INFO", and(deciders, broker.UserGateway, broker.UserInstaller)},
	{"$JS.API.STREAM.MSG.GET.OUTPUT", and(readers, broker.UserRunner, broker.UserInstaller)},
	{"$JS.API.STREAM.MSG.GET.BLOBS", and(and(deciders, readers...), broker.UserInstaller)},
	{"$JS.API.STREAM.MSG.GET.TRANSIT", and(deciders, broker.UserGateway, broker.UserInstaller)},
	{"$JS.API.STREAM.PURGE.BLOBS", only(broker.UserInstaller)},
	{"$JS.API.STREAM.MSG.DELETE.BLOBS", only(broker.UserInstaller)},
	{"$JS.API.STREAM.MSG.GET.KV_PARKED", and(deciders, broker.UserInstaller)},
	{"$JS.API.DIRECT.GET.EVENTS", only(broker.UserInstaller)},

	// One's own durable consumer, and nobody else's.
	{"$JS.API.CONSUMER.MSG.NEXT.EVENTS.session", only(broker.UserSession, broker.UserInstaller)},
	{"$JS.API.CONSUMER.MSG.NEXT.EVENTS.policy", only(broker.UserPolicy, broker.UserInstaller)},
	{"$JS.API.CONSUMER.INFO.EVENTS.runner", and(readers, broker.UserRunner, broker.UserInstaller)},
	{"$JS.ACK.EVENTS.workload.1.1.1.1.0", only(broker.UserWorkload, broker.UserInstaller)},
	{"$JS.API.CONSUMER.DELETE.EVENTS.gone", and(readers, broker.UserInstaller)},

	// What is parked.
	{"$KV.PARKED.session.default.s-1", only(broker.UserSession, broker.UserInstaller)},
	{"$KV.PARKED.runner.default.s-1", only(broker.UserRunner, broker.UserInstaller)},
	{"$KV.OTHER.x", nobody},

	// Everything else.
	{"$SRV.PING", only(broker.UserInstaller)},
	{"$SRV.PING.holdfast-policy", only(broker.UserGateway, broker.UserInstaller)},
	{"$SRV.STATS.holdfast-policy", only(broker.UserInstaller)},
	{"$SRV.PING.holdfast-session", only(broker.UserGateway, broker.UserInstaller)},
	{"$SRV.STATS.holdfast-session", only(broker.UserInstaller)},
	{"$SYS.REQ.SERVER.PING", nobody},
	{"anything", nobody},
}

func TestEachUserMayPublishItsOwnAndNothingElse(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	s.ExpectDenials()
	for _, user := range broker.Users() {
		for _, a := range attempts {
			t.Run(fmt.Sprintf("%s to %s", user, a.subject), func(t *testing.T) {
				// A connection for each, since the last error of one stays.
				nc := s.NC(user)
				err := publish(t, nc, a.subject)
				switch may := slices.Contains(a.may, user); {
				case may && err != nil:
					t.Errorf("denied: %v", err)
				case !may && err == nil:
					t.Error("let through")
				case !may && !violates(err, "Publish", a.subject):
					t.Errorf("%v, want the server's permissions violation", err)
				}
			})
		}
	}
}

// Where the log is concerned, "not denied" isn't enough: what may be written is
// stored, what may not isn't.
func TestPermittedEventsAreStored(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	s.ExpectDenials()
	installer := s.JS(broker.UserInstaller)
	for _, a := range attempts {
		stream, stored := streamOf(a.subject)
		if !stored || a.subject == "ev.genesis" { // the stream has its genesis already
			continue
		}
		for _, user := range broker.Users() {
			before := lastSeq(t, installer, stream)
			js, err := jetstream.New(s.NC(user))
			if err != nil {
				t.Fatal(err)
			}
			if may := slices.Contains(a.may, user); may {
				if _, err := js.Publish(t.Context(), a.subject, []byte("{}")); err != nil {
					t.Errorf("%s to %s: %v", user, a.subject, err)
				}
				before++
			} else {
				_ = publish(t, js.Conn(), a.subject)
			}
			if after := lastSeq(t, installer, stream); after != before {
				t.Errorf("%s to %s: %s is at %d, want %d", user, a.subject, stream, after, before)
			}
		}
	}
}

func TestEachUserMaySubscribeItsOwnAndNothingElse(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	s.ExpectDenials()
	for _, a := range []struct {
		subject string
		may     []broker.User
	}{
		{"cmd.session.>", only(broker.UserSession)},
		{"cmd.policy.*.decide", only(broker.UserPolicy)},
		{"cmd.runner.instance.i-1.ping", only(broker.UserRunner)},
		{"cmd.>", nobody},
		{"host.local.do.*", only(broker.UserHost)},
		{"host.local.ask.*", only(broker.UserWorkload)},
		{"host.local.tell.*", only(broker.UserWorkload)},
		{"ev.>", nobody},
		{"ev.default.s.s-1", nobody},
		{"out.>", nobody},
		{"$KV.PARKED.>", nobody},
		{"$SRV.PING", deciders},
		{"_INBOX_session.>", only(broker.UserSession)},
		{"_INBOX_gateway.>", only(broker.UserGateway)},
		{"_INBOX.>", nobody},
		{">", nobody},
	} {
		for _, user := range broker.Users() {
			t.Run(fmt.Sprintf("%s of %s", user, a.subject), func(t *testing.T) {
				nc := s.NC(user)
				if _, err := nc.SubscribeSync(a.subject); err != nil {
					t.Fatal(err)
				}
				err := answered(t, nc)
				switch may := slices.Contains(a.may, user); {
				case may && err != nil:
					t.Errorf("denied: %v", err)
				case !may && !violates(err, "Subscription", a.subject):
					t.Errorf("%v, want the server's permissions violation", err)
				}
			})
		}
	}
}

// publish sends and gives the permissions violation, if that is the answer.
func publish(t *testing.T, nc *nats.Conn, subject string) error {
	t.Helper()
	// With a reply, as requests have: without, JetStream says nothing.
	if err := nc.PublishRequest(subject, nc.NewInbox(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	return answered(t, nc)
}

// answered waits until the server has seen all that was sent. What it says of it
// comes before its answer to the flush.
func answered(t *testing.T, nc *nats.Conn) error {
	t.Helper()
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	return nc.LastError()
}

func violates(err error, what, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), "Permissions Violation for "+what+` to "`+subject+`"`)
}

func streamOf(subject string) (string, bool) {
	switch {
	case strings.HasPrefix(subject, "ev."):
		return "EVENTS", true
	case strings.HasPrefix(subject, "out."):
		return "OUTPUT", true
	default:
		return "", false
	}
}

func lastSeq(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

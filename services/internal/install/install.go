package install

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Options of an installation. The zero value is that of one machine.
type Options struct {
	// Replicas of every stream: 1 (also for 0) or, in production, 3.
	Replicas int
	// OutputMaxAge is how long OUTPUT keeps a message; 0 means 24 h.
	OutputMaxAge time.Duration
	// OutputMaxBytes is how much OUTPUT keeps; 0 means 1 GiB. The server reserves it.
	OutputMaxBytes int64
	// LogMaxBytes is how much EVENTS and BLOBS may hold, each; 0 is no limit. Streams that
	// are there with a lower limit are given this one, and keep a higher, or none. The
	// server reserves it, and the brake needs one: package brake.
	LogMaxBytes int64
	// RedeliverAfter is how long a message that a reactor holds may go without a sign
	// of life before another gets it, the first, second and later times; empty means
	// 10 s, 30 s, 1 min.
	RedeliverAfter []time.Duration
	// Logger is told of each limit that is raised, or that isn't as asked for; nil is
	// nobody.
	Logger *slog.Logger
}

// Limits of what is installed.
const (
	// maxMessage is the size of a message on EVENTS and OUTPUT, headers included:
	// NATS' default.
	maxMessage = 1 << 20
	// transitAge is how long what a large command or answer holds is kept: longer than
	// any command may take. transitBytes bounds all of them together; a command beyond
	// is refused, for nothing that is on its way may be lost.
	transitAge   = 10 * time.Minute
	transitBytes = 512 << 20
	// maxAckPending is how many messages a service's instances may hold together.
	maxAckPending = 65536
)

func (o Options) validate() (Options, error) {
	if o.Replicas < 0 || o.Replicas > 5 || o.OutputMaxAge < 0 || o.OutputMaxBytes < 0 || o.LogMaxBytes < 0 {
		return o, fmt.Errorf("install: replicas are 1 to 5 and limits not negative: %d replicas, output %s and %d bytes, log %d bytes",
			o.Replicas, o.OutputMaxAge, o.OutputMaxBytes, o.LogMaxBytes)
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.OutputMaxAge == 0 {
		o.OutputMaxAge = 24 * time.Hour
	}
	if o.OutputMaxBytes == 0 {
		o.OutputMaxBytes = 1 << 30
	}
	if len(o.RedeliverAfter) == 0 {
		o.RedeliverAfter = []time.Duration{10 * time.Second, 30 * time.Second, time.Minute}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Run installs with the defaults, or verifies that it is installed so, and gives
// the log's identity.
func Run(ctx context.Context, js jetstream.JetStream) (eventlog.Genesis, error) {
	return RunWith(ctx, js, Options{})
}

// RunWith is Run with options; the same every time.
func RunWith(ctx context.Context, js jetstream.JetStream, opts Options) (eventlog.Genesis, error) {
	opts, err := opts.validate()
	if err != nil {
		return eventlog.Genesis{}, err
	}
	in := installation{js: js, opts: opts}
	missing, err := in.verify(ctx)
	if err != nil {
		return eventlog.Genesis{}, err
	}
	for _, m := range missing {
		if err := m.create(ctx); err != nil {
			return eventlog.Genesis{}, fmt.Errorf("install %s: %w", m.what, err)
		}
	}
	if err := in.raise(ctx); err != nil {
		return eventlog.Genesis{}, err
	}
	return in.genesis(ctx)
}

// Check looks whether it is installed so, changes nothing, and names what is missing.
// What is there and differs is a *DifferentError; what isn't a log of ours a
// *GenesisError.
func Check(ctx context.Context, js jetstream.JetStream, opts Options) (missing []string, err error) {
	opts, err = opts.validate()
	if err != nil {
		return nil, err
	}
	in := installation{js: js, opts: opts}
	parts, err := in.verify(ctx)
	for _, p := range parts {
		missing = append(missing, p.what)
	}
	return missing, err
}

// installation is one run.
type installation struct {
	js   jetstream.JetStream
	opts Options
}

// part is one thing to install. look gives what differs from how it should be;
// errMissing when it isn't there.
type part struct {
	what   string
	look   func(context.Context) ([]Difference, error)
	create func(context.Context) error
}

// errMissing is a part's answer that it isn't there yet.
var errMissing = errors.New("missing")

// verify looks at everything, changes nothing, and gives what is missing, in the
// order in which to make it.
func (in installation) verify(ctx context.Context) ([]part, error) {
	if err := in.verifyGenesis(ctx); err != nil {
		return nil, err
	}
	var parts []part
	for _, p := range in.streams() {
		parts = append(parts, in.stream(p))
	}
	for _, service := range Reacting() {
		parts = append(parts, in.consumer(in.consumerConfig(service)))
	}
	var missing []part
	var differences []Difference
	for _, p := range parts {
		found, err := p.look(ctx)
		switch {
		case errors.Is(err, errMissing):
			missing = append(missing, p)
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", p.what, err)
		}
		differences = append(differences, found...)
	}
	if len(differences) > 0 {
		return nil, &DifferentError{Differences: differences}
	}
	return missing, nil
}

// streams are all streams, in the order in which to make them.
func (in installation) streams() []planned {
	return []planned{
		{want: in.eventsConfig(), limit: in.opts.LogMaxBytes},
		{want: in.blobsConfig(), limit: in.opts.LogMaxBytes},
		{want: in.outputConfig()},
		{want: in.transitConfig()},
		{want: in.parkedConfig()},
	}
}

func (in installation) stream(p planned) part {
	return part{
		what: "stream " + p.want.Name,
		look: func(ctx context.Context) ([]Difference, error) {
			s, err := in.js.Stream(ctx, p.want.Name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil, errMissing
			}
			if err != nil {
				return nil, err
			}
			return compareStream(p.want, s.CachedInfo().Config), nil
		},
		create: func(ctx context.Context) error {
			_, err := in.js.CreateStream(ctx, p.made())
			return err
		},
	}
}

func (in installation) consumer(want jetstream.ConsumerConfig) part {
	return part{
		what: "consumer " + want.Durable,
		look: func(ctx context.Context) ([]Difference, error) {
			c, err := in.js.Consumer(ctx, events.StreamEvents, want.Durable)
			if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil, errMissing
			}
			if err != nil {
				return nil, err
			}
			return compareConsumer(want, c.CachedInfo().Config), nil
		},
		create: func(ctx context.Context) error {
			_, err := in.js.CreateConsumer(ctx, events.StreamEvents, want)
			return err
		},
	}
}

func (in installation) eventsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: events.StreamEvents, Description: "Holdfast: decisions, kept for ever",
		Subjects:  []string{events.SubjectsEvents},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: in.opts.Replicas,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: maxMessage,
		Discard:    jetstream.DiscardNew, // a limit that someone sets must refuse, not forget
		DenyDelete: true, DenyPurge: true,
	}
}

// blobsConfig is what EVENTS is, and more: a subject has one message, which nothing
// replaces.
func (in installation) blobsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: events.StreamBlobs, Description: "Holdfast: contents too large for EVENTS, kept for ever",
		Subjects:  []string{events.SubjectsBlobs},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: in.opts.Replicas,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: 1, MaxConsumers: -1, MaxMsgSize: maxMessage,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		DenyDelete: true, DenyPurge: true,
	}
}

// transitConfig is for commands and answers that are too large for a message.
func (in installation) transitConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: events.StreamTransit, Description: "Holdfast: large commands and answers on their way",
		Subjects:  []string{events.SubjectsTransit},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: in.opts.Replicas,
		MaxMsgs: -1, MaxBytes: transitBytes, MaxAge: transitAge,
		MaxMsgsPerSubject: 1, MaxConsumers: -1, MaxMsgSize: maxMessage,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		DenyDelete: true,
	}
}

func (in installation) outputConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: events.StreamOutput, Description: "Holdfast: what agents stream, for a bounded age",
		Subjects:  []string{events.SubjectsOutput},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: in.opts.Replicas,
		MaxMsgs: -1, MaxBytes: in.opts.OutputMaxBytes, MaxAge: in.opts.OutputMaxAge,
		MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: maxMessage,
		Discard:    jetstream.DiscardOld,
		DenyDelete: true,
	}
}

// parkedConfig is a key-value bucket: a stream KV_<bucket> with one message a key.
// It is written out, since jetstream's own would allow direct get, which a follower
// may answer stale.
func (in installation) parkedConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_" + BucketParked, Description: "Holdfast: sessions that reactors gave up on",
		Subjects:  []string{"$KV." + BucketParked + ".>"},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: in.opts.Replicas,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: 1, MaxConsumers: -1, MaxMsgSize: maxMessage,
		Discard:    jetstream.DiscardNew,
		DenyDelete: true,
	}
}

func (in installation) consumerConfig(service events.Service) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: Consumer(service), Description: "Holdfast: what the " + string(service) + " service reacts to",
		FilterSubject: events.SubjectsSessions,
		DeliverPolicy: jetstream.DeliverAllPolicy, ReplayPolicy: jetstream.ReplayInstantPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: in.opts.RedeliverAfter[0],
		MaxDeliver: -1, BackOff: in.opts.RedeliverAfter, MaxAckPending: maxAckPending,
		HeadersOnly: true,
	}
}

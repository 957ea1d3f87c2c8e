package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/natsblob"
)

// Sizes of commands and answers, encoded.
const (
	// MaxMessageBytes is how large one may be to travel as one message, below NATS'
	// own bound. What is larger waits in TRANSIT, and the message names it.
	MaxMessageBytes = 512 << 10
	// MaxBodyBytes bounds what a command or an answer carries at all: a content of the
	// largest size that the API takes (16 MiB), twice, since an answer may hold a call's
	// arguments beside its result.
	MaxBodyBytes = 32 << 20
)

// parcel names what waits in TRANSIT. Its owner is made of the service and the tenant
// of the subject by which it comes, so it can't lead to what another tenant sent.
type parcel struct {
	// Name is random: what is sent again is another parcel, with its own time to live.
	Name string      `json:"name"`
	Blob events.Blob `json:"blob"`
}

func (p parcel) owner(service events.Service, tenant string) blob.Owner {
	return blob.Owner(string(service) + "." + tenant + "." + p.Name)
}

// send puts contents into TRANSIT.
func send(ctx context.Context, nc *nats.Conn, service events.Service, tenant string, contents []byte) (parcel, error) {
	store, err := transit(nc)
	if err != nil {
		return parcel{}, err
	}
	p := parcel{Name: events.RandomID("t")}
	if p.Blob, err = store.Put(ctx, p.owner(service, tenant), contents); err != nil {
		return parcel{}, fmt.Errorf("to %s in transit: %w", service, err)
	}
	return p, nil
}

// receive takes contents out of TRANSIT, which forgets them by itself.
func (p parcel) receive(ctx context.Context, nc *nats.Conn, service events.Service, tenant string) (json.RawMessage, error) {
	if p.Blob.Size > MaxBodyBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", events.ErrTooLarge, p.Blob.Size, MaxBodyBytes)
	}
	store, err := transit(nc)
	if err != nil {
		return nil, err
	}
	return store.Get(ctx, p.owner(service, tenant), p.Blob)
}

func transit(nc *nats.Conn) (blob.Store, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return natsblob.New(js, nc, natsblob.Transit)
}

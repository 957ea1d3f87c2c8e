// Package deps pins dependencies while the first code is written.
package deps
import (
_ "github.com/cenkalti/backoff/v5"
_ "github.com/gowebpki/jcs"
_ "github.com/hashicorp/golang-lru/v2"
_ "github.com/nats-io/nats-server/v2/server"
_ "github.com/nats-io/nats.go/jetstream"
_ "go.uber.org/goleak"
_ "golang.org/x/sync/errgroup"
_ "pgregory.net/rapid"
)

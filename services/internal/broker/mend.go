package broker

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

const (
	// mendEvery is the time between looks at whether JetStream can write.
	mendEvery = 2 * time.Second
	// roomToMend is how much of the disk has to be free before JetStream is started
	// again: with less it would fail at the next write.
	roomToMend = 8 << 20
)

// mender starts the server again after the disk was full. A stream that could not
// write once takes nothing more until it is opened anew, whatever room there is later;
// a server of its own is restarted by whoever watches its /healthz, the embedded one
// has only this. The whole server is another one afterwards: to shut JetStream down and
// enable it in a running server is a data race inside of it. Connections are made again
// by themselves, as after any restart.
type mender struct {
	broker *Broker
	stop   func() // may be called again
	done   sync.WaitGroup

	// told says that the full disk was logged; closed that an attempt to start again has
	// failed: then no server is there to say that it can't write.
	told, closed bool
}

func startMending(b *Broker) *mender {
	stopped := make(chan struct{})
	m := &mender{broker: b, stop: sync.OnceFunc(func() { close(stopped) })}
	m.done.Go(func() { m.run(stopped) })
	return m
}

// end waits until nothing is being mended; it may be called again, and on nil.
func (m *mender) end() {
	if m == nil {
		return
	}
	m.stop()
	m.done.Wait()
}

func (m *mender) run(stopped <-chan struct{}) {
	tick := time.NewTicker(mendEvery)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
			m.look()
		}
	}
}

// look mends what has to be and can be mended now.
func (m *mender) look() {
	switch {
	case !m.closed && m.writes():
		m.told = false
	case m.room():
		m.mend()
	case !m.told:
		m.told = true
		m.broker.cfg.Logger.Error("NATS can't write: its disk is full; it goes on by itself when there is room", "dir", m.broker.cfg.Dir)
	}
}

// mend starts again.
func (m *mender) mend() {
	err := m.reopen()
	if m.closed = err != nil; m.closed {
		m.broker.cfg.Logger.Error("NATS can't start again, trying again", "error", err)
		return
	}
	m.broker.cfg.Logger.Warn("NATS was started again after a write that failed", "dir", m.broker.cfg.Dir)
}

// writes says whether every stream takes writes. The rest of the server's health is
// none of its business: a busy server is late, and starting JetStream again would only
// make it later.
func (m *mender) writes() bool {
	health := m.broker.server.Load().Healthz(&server.HealthzOptions{Details: true})
	return !slices.ContainsFunc(health.Errors, func(e server.HealthzError) bool {
		return (e.Type == server.HealthzErrorStream || e.Type == server.HealthzErrorConsumer) && strings.Contains(e.Error, "write error")
	})
}

// room says whether the disk has any again.
func (m *mender) room() bool {
	var fs unix.Statfs_t
	return unix.Statfs(m.broker.cfg.Dir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= roomToMend
}

// reopen ends the server and starts one from what is on the disk.
func (m *mender) reopen() error {
	if s := m.broker.server.Swap(nil); s != nil {
		stop(s)
	}
	port := 0
	if m.broker.addr != nil {
		port = m.broker.addr.Port
	}
	return m.broker.serve(port)
}

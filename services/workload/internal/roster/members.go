package roster

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// members is what a replica knows of itself and of the others.
type members struct {
	self     string
	patience time.Duration // Config.For

	mu     sync.Mutex
	others map[string]sighting
	// renewed is when the last renewal that worked began, joined when the first one of an
	// unbroken row was over; zero before.
	renewed, joined time.Time
	// settled says that all others know of this one.
	settled bool
}

// sighting is another's lease: when it was seen to change last, and what it was then.
type sighting struct {
	version string
	at      time.Time
	alive   bool
}

// trusts is how long a replica acts on its last renewal: less than others wait.
func (m *members) trusts() time.Duration { return m.patience * 2 / 3 }

// saw takes in a renewal, begun at a time and over now, and the versions of the others'
// leases after it, by identity. It says whether more falls to this replica than before.
// Each time counts from that end which makes this replica the more careful.
func (m *members) saw(others map[string]string, begun, now time.Time) (more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.joined.IsZero() || now.Sub(m.renewed) > m.trusts() {
		m.joined, m.settled = now, false // others may have taken over
	}
	m.renewed = begun
	before := m.others
	m.others = make(map[string]sighting, len(others))
	for name, version := range others {
		s, known := before[name]
		if !known || s.version != version {
			s = sighting{version: version, at: now}
		}
		s.alive = begun.Sub(s.at) < m.patience
		m.others[name] = s
	}
	if !m.settled {
		m.settled = len(others) == 0 || now.Sub(m.joined) >= m.patience
		return m.settled
	}
	for name, s := range before {
		more = more || s.alive && !m.others[name].alive
	}
	return more
}

// mine says whether a key is this replica's.
func (m *members) mine(key string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.settled || now.Sub(m.renewed) > m.trusts() {
		return false
	}
	own := rank(key, m.self)
	for name, s := range m.others {
		if r := rank(key, name); s.alive && (r > own || r == own && name > m.self) {
			return false
		}
	}
	return true
}

// left says whether another has been gone for so long that it won't be back.
func (m *members) left(name string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.others[name]
	return known && now.Sub(s.at) > forgetAfter*m.patience
}

// leave gives up everything.
func (m *members) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined, m.settled = time.Time{}, false
}

// rank is how high a replica ranks for a key: as good as drawn by lot, and the same for all.
func rank(key, replica string) uint64 {
	sum := sha256.Sum256([]byte(replica + "\x00" + key))
	return binary.BigEndian.Uint64(sum[:])
}

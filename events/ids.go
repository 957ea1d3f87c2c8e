package events

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// idLength is how many characters of base32 an id carries: 100 bits.
const idLength = 20

// HashID makes an id from what a client chose, so that it never gets into a
// subject raw and two owners never meet: prefix, "-", 20 characters of base32
// over the length-prefixed parts.
func HashID(prefix string, parts ...string) string {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return prefix + "-" + idEncoding.EncodeToString(h.Sum(nil))[:idLength]
}

// RandomID makes a fresh id with the prefix. For the edges; deciders get ids.
func RandomID(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + "-" + idEncoding.EncodeToString(b[:])[:idLength]
}

// Prefixes of ids, from wire.md.
const (
	PrefixSession = "s"
	PrefixRun     = "r"
	PrefixMessage = "m"
	PrefixCommand = "cmd"
	PrefixSweep   = "sw"
)

// CallID is deterministic in session, the agent's call id, tool and the
// arguments' hash: a replayed request asks the same question. It starts with
// the session, so that answering needs no database: <session>.c-<hash>.
func CallID(session, agentCallID, tool, argsHash string) string {
	return session + "." + HashID("c", session, agentCallID, tool, argsHash)
}

// SessionOfCall gives the session that a call's id starts with.
func SessionOfCall(callID string) (session string, ok bool) {
	session, rest, found := strings.Cut(callID, ".")
	if !found || !ValidToken(session) || !strings.HasPrefix(rest, "c-") || !ValidToken(rest) {
		return "", false
	}
	return session, true
}

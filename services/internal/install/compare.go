package install

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Difference is one setting that is not as it should be.
type Difference struct {
	// What is "stream EVENTS" or "consumer session".
	What string
	// Setting is the field's name in JetStream's configuration.
	Setting string
	// Want and Have are its values in words.
	Want, Have string
}

// String gives "what: setting is have, not want".
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s is %s, not %s", d.What, d.Setting, d.Have, d.Want)
}

// DifferentError says that something is there and configured otherwise. Nothing was
// changed.
type DifferentError struct{ Differences []Difference }

// Error lists the differences.
func (e *DifferentError) Error() string {
	lines := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		lines[i] = d.String()
	}
	return "installed otherwise, nothing was changed: " + strings.Join(lines, "; ")
}

// compareStream compares what Holdfast relies on. What an operator may choose
// (placement, compression, description, window of duplicates, a limit where we set
// none: it refuses and forgets nothing) is left out.
func compareStream(want, have jetstream.StreamConfig) []Difference {
	c := comparison{what: "stream " + want.Name}
	c.add("subjects", want.Subjects, have.Subjects)
	c.add("retention", want.Retention, have.Retention)
	c.add("storage", want.Storage, have.Storage)
	c.add("replicas", want.Replicas, have.Replicas)
	c.add("max_msgs", want.MaxMsgs, have.MaxMsgs)
	if want.MaxBytes > 0 {
		c.add("max_bytes", want.MaxBytes, have.MaxBytes)
	}
	c.add("max_age", want.MaxAge, have.MaxAge)
	c.add("max_msgs_per_subject", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	c.add("max_msg_size", want.MaxMsgSize, have.MaxMsgSize)
	c.add("discard", want.Discard, have.Discard)
	c.add("discard_new_per_subject", want.DiscardNewPerSubject, have.DiscardNewPerSubject)
	c.add("deny_delete", want.DenyDelete, have.DenyDelete)
	c.add("deny_purge", want.DenyPurge, have.DenyPurge)
	c.add("allow_rollup_hdrs", want.AllowRollup, have.AllowRollup)
	c.add("allow_direct", want.AllowDirect, have.AllowDirect)
	c.add("allow_msg_ttl", want.AllowMsgTTL, have.AllowMsgTTL)
	c.add("allow_msg_counter", want.AllowMsgCounter, have.AllowMsgCounter)
	c.add("allow_msg_schedules", want.AllowMsgSchedules, have.AllowMsgSchedules)
	c.add("no_ack", want.NoAck, have.NoAck)
	c.add("sealed", want.Sealed, have.Sealed)
	c.add("mirror", want.Mirror, have.Mirror)
	c.add("sources", len(want.Sources), len(have.Sources))
	c.add("subject_transform", want.SubjectTransform, have.SubjectTransform)
	c.add("republish", want.RePublish, have.RePublish)
	return c.found
}

func compareConsumer(want, have jetstream.ConsumerConfig) []Difference {
	c := comparison{what: "consumer " + want.Durable}
	c.add("filter_subject", want.FilterSubject, have.FilterSubject)
	c.add("filter_subjects", len(want.FilterSubjects), len(have.FilterSubjects))
	c.add("deliver_policy", want.DeliverPolicy, have.DeliverPolicy)
	c.add("replay_policy", want.ReplayPolicy, have.ReplayPolicy)
	c.add("ack_policy", want.AckPolicy, have.AckPolicy)
	c.add("max_deliver", want.MaxDeliver, have.MaxDeliver)
	c.add("backoff", want.BackOff, have.BackOff)
	c.add("max_ack_pending", want.MaxAckPending, have.MaxAckPending)
	c.add("headers_only", want.HeadersOnly, have.HeadersOnly)
	c.add("inactive_threshold", want.InactiveThreshold, have.InactiveThreshold)
	c.add("mem_storage", want.MemoryStorage, have.MemoryStorage)
	return c.found
}

type comparison struct {
	what  string
	found []Difference
}

func (c *comparison) add(setting string, want, have any) {
	if !reflect.DeepEqual(want, have) {
		c.found = append(c.found, Difference{What: c.what, Setting: setting, Want: fmt.Sprint(want), Have: fmt.Sprint(have)})
	}
}

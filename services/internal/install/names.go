package install

import "github.com/holdfast-io/holdfast/events"

// BucketParked is the key-value bucket of what reactors gave up on; its keys are
// <service>.<tenant>.<session>.
const BucketParked = "PARKED"

// Consumer is the name of a reacting service's durable consumer on EVENTS.
func Consumer(service events.Service) string { return string(service) }

// Reacting lists the services that react to events and so have a consumer.
func Reacting() []events.Service {
	return []events.Service{events.ServiceSession, events.ServiceWorkload, events.ServicePolicy, events.ServiceRunner}
}

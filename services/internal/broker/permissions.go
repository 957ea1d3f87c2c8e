package broker

import (
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// User is a NATS user. Each service has one, by its own name.
type User string

// The users.
const (
	UserSession   User = "session"
	UserWorkload  User = "workload"
	UserPolicy    User = "policy"
	UserRunner    User = "runner"
	UserGateway   User = "gateway"
	UserProjector User = "projector"
	UserHost      User = "host"
	UserInstaller User = "installer"
)

// Users lists all users.
func Users() []User {
	return []User{UserSession, UserWorkload, UserPolicy, UserRunner, UserGateway, UserProjector, UserHost, UserInstaller}
}

// inbox is the prefix of the subjects that replies to a user come to: its own, so
// that no user can read another's answers.
func inbox(u User) string { return "_INBOX_" + string(u) }

// grants is what a user may do: subjects to publish and subscribe, those to publish
// that are denied all the same, and whether it answers requests.
type grants struct {
	publish, deny, subscribe []string
	answers                  bool
}

// parked is the stream under the bucket PARKED.
const parked = "KV_" + install.BucketParked

// accountInfo tells how much of the account's storage is used, which the brake measures.
const accountInfo = "$JS.API.INFO"

// grantsOf is the table of permissions.
func grantsOf(u User) grants {
	var g grants
	switch u {
	case UserSession:
		g = decider(events.ServiceSession)
	case UserWorkload:
		g = decider(events.ServiceWorkload)
		g.publish = append(g.publish, "ev.*.runtime.*", "blob.*.runtime.*.*.*", "ev.*.sweep.*", "blob.*.sweep.*.*.*", events.SubjectsHostDo)
		g.subscribe = append(g.subscribe, events.SubjectsHostAsk, events.SubjectsHostTell)
	case UserPolicy:
		g = decider(events.ServicePolicy)
		g.publish = append(g.publish, "ev.*.policy.*", "blob.*.policy.*.*.*")
	case UserRunner:
		g = decider(events.ServiceRunner)
		g.publish = append(g.publish, "out.*.*", "out.*.*.*.*") // batches, and what is too large for one
		g.publish = append(g.publish, "transit.policy.*.*.*.*", "cmd.workload.*.locate", "cmd.session.*.note-activity", "cmd.policy.*.propose")
		g.publish = append(g.publish, leaderReads(events.StreamOutput)...)
	case UserGateway:
		// The pings ask whether each service answers.
		g.publish = append(tails(), "cmd.*.*.*", "transit.*.*.*.*.*", "$SRV.PING.*", accountInfo)
		g.publish = append(g.publish, leaderReads(events.StreamTransit)...)
		g.deny = othersConsumers()
	case UserProjector:
		g.publish = tails()
		g.deny = othersConsumers()
	case UserHost:
		// One user for all hosts: each asks whether its name is taken, and no more.
		g = grants{
			answers:   true,
			publish:   []string{events.SubjectsHostAsk, events.SubjectsHostTell, "host.*.do.hello"},
			subscribe: []string{events.SubjectsHostDo},
		}
	case UserInstaller:
		g.publish = []string{
			events.SubjectGenesis, "$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "$KV." + install.BucketParked + ".>",
			"$JS.SNAPSHOT.>", // a backup's flow, and what a restore sends
			"$SRV.>",         // doctor asks who is there
		}
	}
	g.subscribe = append(g.subscribe, inbox(u)+".>")
	return g
}

// decider is what each service that appends to sessions may do.
func decider(service events.Service) grants {
	name, consumer := string(service), install.Consumer(service)
	own := "$KV." + install.BucketParked + "." + name + ".>"
	g := grants{
		answers: true,
		publish: []string{
			events.SubjectsSessions,
			"blob.*.s.*.*.*",               // <tenant>.s.<session>.<hash>.<piece>
			"transit." + name + ".*.*.*.*", // its large answers
			"cmd." + name + ".>",           // its own sweeps, and instances among themselves
			accountInfo,
			// Its durable consumer on EVENTS.
			"$JS.API.CONSUMER.INFO." + events.StreamEvents + "." + consumer,
			"$JS.API.CONSUMER.MSG.NEXT." + events.StreamEvents + "." + consumer,
			"$JS.ACK." + events.StreamEvents + "." + consumer + ".>",
			// Its part of what is parked: write, and watch.
			own,
			"$JS.API.CONSUMER.CREATE." + parked + ".*." + own,
			"$JS.API.CONSUMER.INFO." + parked + ".*",
			"$JS.API.CONSUMER.DELETE." + parked + ".*",
			"$JS.FC." + parked + ".>",
		},
		subscribe: []string{"cmd." + name + ".>"},
	}
	for _, stream := range []string{events.StreamEvents, events.StreamBlobs, events.StreamTransit, parked} {
		g.publish = append(g.publish, leaderReads(stream)...)
	}
	// What nats.go/micro subscribes to be found.
	for _, verb := range []string{"PING", "STATS", "INFO"} {
		for _, which := range []string{"", ".holdfast-" + name, ".holdfast-" + name + ".*"} {
			g.subscribe = append(g.subscribe, "$SRV."+verb+which)
		}
	}
	return g
}

// leaderReads are single messages and the extent of a stream.
func leaderReads(stream string) []string {
	return []string{"$JS.API.STREAM.MSG.GET." + stream, "$JS.API.STREAM.INFO." + stream}
}

// tails are what reading EVENTS and OUTPUT in order takes, with what lies beside them.
func tails() []string {
	subjects := append(leaderReads(events.StreamEvents), leaderReads(events.StreamOutput)...)
	subjects = append(subjects, leaderReads(events.StreamBlobs)...)
	for _, stream := range []string{events.StreamEvents, events.StreamOutput} {
		subjects = append(subjects,
			"$JS.API.CONSUMER.CREATE."+stream+".*",
			"$JS.API.CONSUMER.CREATE."+stream+".*.>",
			"$JS.API.CONSUMER.INFO."+stream+".*",
			"$JS.API.CONSUMER.DELETE."+stream+".*",
			"$JS.API.CONSUMER.MSG.NEXT."+stream+".*",
		)
	}
	return subjects
}

// othersConsumers are the durable consumers, which a reader could otherwise change,
// remove or empty: a wildcard can't be narrowed to part of a name.
func othersConsumers() []string {
	services := install.Reacting()
	subjects := make([]string, 0, 4*len(services))
	for _, service := range services {
		name := events.StreamEvents + "." + install.Consumer(service)
		subjects = append(subjects,
			"$JS.API.CONSUMER.CREATE."+name,
			"$JS.API.CONSUMER.CREATE."+name+".>",
			"$JS.API.CONSUMER.DELETE."+name,
			"$JS.API.CONSUMER.MSG.NEXT."+name,
		)
	}
	return subjects
}

const (
	// maxAnswers is how many messages may answer one request.
	maxAnswers = 1
	// answerWithin bounds how long a request may be answered: a little more than a
	// command may take.
	answerWithin = 3 * time.Minute
)

// permissions gives the table's row in the server's terms.
func permissions(u User) *server.Permissions {
	g := grantsOf(u)
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: slices.Clone(g.publish), Deny: slices.Clone(g.deny)},
		Subscribe: &server.SubjectPermission{Allow: slices.Clone(g.subscribe)},
	}
	if g.answers {
		p.Response = &server.ResponsePermission{MaxMsgs: maxAnswers, Expires: answerWithin}
	}
	return p
}

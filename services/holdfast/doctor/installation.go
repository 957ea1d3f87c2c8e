package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
)

// examineInstallation looks at the NATS and the Postgres that the environment names.
func examineInstallation(ctx context.Context) []Finding {
	var found []Finding
	if url := os.Getenv(broker.EnvURL); url != "" {
		found = append(found, passwords(ctx, url))
		found = append(found, streams(ctx, url)...)
	}
	if dsn := os.Getenv(postgres.EnvURL); dsn != "" {
		found = append(found, schema(ctx, dsn))
	}
	return found
}

// connectWithin is how long NATS may take to let a user in: package broker tries until
// then.
const connectWithin = 3 * time.Second

func connect(ctx context.Context, url string, u broker.User) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	return broker.Connect(ctx, broker.Client{URL: url, User: u, Password: os.Getenv(broker.PasswordVariable(u)), Logger: slog.New(slog.DiscardHandler)})
}

// passwords tries each user whose password is in the environment.
func passwords(ctx context.Context, url string) Finding {
	const name = "nats.users"
	var worked, missing, refused []string
	for _, u := range broker.Users() {
		if os.Getenv(broker.PasswordVariable(u)) == "" {
			missing = append(missing, string(u))
			continue
		}
		nc, err := connect(ctx, url, u)
		if errors.Is(err, context.DeadlineExceeded) {
			return broken(name, fmt.Sprintf("%s lets %s not in: %v", url, u, err), "start that NATS, or correct "+broker.EnvURL)
		}
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s (%v)", u, err))
			continue
		}
		nc.Close()
		worked = append(worked, string(u))
	}
	switch {
	case len(refused) > 0:
		return broken(name, "refused: "+strings.Join(refused, "; "), "give NATS and the services the same passwords ('holdfast nats-conf' prints NATS' side)")
	case len(worked) == 0:
		return warning(name, "no password of any user is set", "set HOLDFAST_NATS_PASSWORD_<USER> for those to look at")
	case len(missing) > 0:
		return fine(name, "%s may connect; not looked at: %s", strings.Join(worked, ", "), strings.Join(missing, ", "))
	}
	return fine(name, "all may connect")
}

// serviceOf is whose environment this is: a service has its own password and no other.
func serviceOf() (u broker.User, its bool) {
	given := slices.DeleteFunc(broker.Users(), func(u broker.User) bool { return os.Getenv(broker.PasswordVariable(u)) == "" })
	if len(given) != 1 {
		return "", false
	}
	return given[0], true
}

// streams compares what is installed with what should be, as the installer.
func streams(ctx context.Context, url string) []Finding {
	const name = "nats.streams"
	if os.Getenv(broker.PasswordVariable(broker.UserInstaller)) == "" {
		if u, its := serviceOf(); its {
			return []Finding{fine(name, "left to the installer: this is the environment of %s", u)}
		}
		return []Finding{warning(name, "not looked at", "set "+broker.PasswordVariable(broker.UserInstaller)+": only the installer sees all of them")}
	}
	nc, err := connect(ctx, url, broker.UserInstaller)
	if err != nil {
		return []Finding{broken(name, err.Error(), "see nats.users above")}
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return []Finding{broken(name, err.Error(), "see nats.users above")}
	}
	s, err := js.Stream(ctx, events.StreamEvents)
	if err != nil {
		return []Finding{broken(name, "EVENTS: "+err.Error(), "run 'holdfast install'")}
	}
	info := s.CachedInfo()
	missing, err := install.Check(ctx, js, install.Options{Replicas: info.Config.Replicas})
	var differs *install.DifferentError
	switch {
	case errors.As(err, &differs):
		return []Finding{broken(name, differs.Error(), "make it so again by hand: 'holdfast install' changes nothing that is there")}
	case err != nil:
		return []Finding{broken(name, err.Error(), "see docs/operations.md")}
	case len(missing) > 0:
		return []Finding{broken(name, "missing: "+strings.Join(missing, ", "), "run 'holdfast install'")}
	}
	return []Finding{fine(name, "as installed; EVENTS holds %d messages, %.1f MiB", info.State.Msgs, float64(info.State.Bytes)/(1<<20)), replicas(info)}
}

// replicas looks at the copies of the log.
func replicas(info *jetstream.StreamInfo) Finding {
	const name = "nats.replicas"
	if info.Config.Replicas < 3 || info.Cluster == nil {
		return warning(name, fmt.Sprintf("EVENTS has %d replica: a lost disk is a lost log", info.Config.Replicas), "in production use three NATS servers, from the start, and 'holdfast install --replicas 3': one that has a log and joins others removes it (docs/operations.md)")
	}
	var behind []string
	for _, r := range info.Cluster.Replicas {
		if !r.Current || r.Offline {
			behind = append(behind, r.Name)
		}
	}
	if len(behind) > 0 {
		return broken(name, "not up to date: "+strings.Join(behind, ", "), "look at those servers; with two of three gone nothing can be written")
	}
	return fine(name, "%d, all up to date; %s leads", info.Config.Replicas, info.Cluster.Leader)
}

// schema looks at Postgres and how far its schema is.
func schema(ctx context.Context, dsn string) Finding {
	const name = "postgres.schema"
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return broken(name, err.Error(), "correct "+postgres.EnvURL+", or start that Postgres: commands go on without it, lists and the audit don't")
	}
	version := conn.PgConn().ParameterStatus("server_version")
	if err := conn.Close(ctx); err != nil {
		return broken(name, err.Error(), "look at that Postgres")
	}
	at, err := migrations.Version(ctx, dsn)
	switch latest := migrations.Latest(); {
	case err != nil:
		return broken(name, err.Error(), "run 'holdfast install'")
	case at < latest:
		return broken(name, fmt.Sprintf("PostgreSQL %s: the schema is at %d of %d", version, at, latest), "run 'holdfast install' of this version")
	case at > latest:
		return broken(name, fmt.Sprintf("PostgreSQL %s: the schema is at %d, this version knows %d", version, at, latest), "use the version that migrated it, or a newer one")
	default:
		return fine(name, "PostgreSQL %s, schema %d", version, at)
	}
}

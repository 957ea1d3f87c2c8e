package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// stand is a ground with services on it: those that a client's writes and viewers
// need. There is no workload service, so sessions stay without sandboxes.
type stand struct {
	*ground

	url    string
	people []tokenfile.Entry
}

// peopleCount is how many persons there are: a gateway gives each of them no more
// than 64 connections.
const peopleCount = 40

// newStand starts a stand. Close it.
func (l *lab) newStand(ctx context.Context) (s *stand, err error) {
	g, err := l.newGround(ctx, true)
	if err != nil {
		return nil, err
	}
	s = &stand{ground: g}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	env, err := s.env(ctx)
	if err != nil {
		return s, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	for name, run := range map[string]func(context.Context) error{
		"session": env.Session, "gateway": env.RunGateway, "projector": env.Projector,
	} {
		group.Go(func() error {
			if err := run(running); err != nil && running.Err() == nil {
				return fmt.Errorf("%s stopped: %w", name, err)
			}
			return nil
		})
	}
	s.onClose(func() error { stop(); return group.Wait() })
	return s, s.waitReady(ctx)
}

// env is what dev gives the services.
func (s *stand) env(ctx context.Context) (parts.Env, error) {
	dsn, err := s.startPostgres(ctx)
	if err != nil {
		return parts.Env{}, err
	}
	pool, err := parts.OpenPool(ctx, dsn)
	if err != nil {
		return parts.Env{}, err
	}
	s.onClose(func() error { pool.Close(); return nil })
	for i := range peopleCount {
		s.people = append(s.people, tokenfile.Entry{
			Name: fmt.Sprintf("person-%d", i), Token: tokenfile.NewToken(), Roles: []api.Role{api.RoleDeveloper}, Tenants: []string{tenant},
		})
	}
	dir, err := s.lab.folder("stand")
	if err != nil {
		return parts.Env{}, err
	}
	tokens := filepath.Join(dir, "tokens.yaml")
	if err := tokenfile.Write(tokens, s.people); err != nil {
		return parts.Env{}, err
	}
	verify, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return parts.Env{}, err
	}
	var lc net.ListenConfig
	public, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return parts.Env{}, err
	}
	agents, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return parts.Env{}, errors.Join(err, public.Close())
	}
	s.url = "http://" + public.Addr().String()
	return parts.Env{
		Connect: s.broker.Connect, Pool: pool, Logger: s.lab.logger, Key: key,
		Gateway: parts.Gateway{Listener: public, Agents: agents, TokensFile: tokens, Key: verify},
	}, nil
}

// client is the API as the first person.
func (s *stand) client() (*apiclient.ClientWithResponses, error) {
	return apiclient.New(apiclient.Config{URL: s.url, Token: s.people[0].Token})
}

// waitReady creates a session until that works.
func (s *stand) waitReady(ctx context.Context) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return eventually(ctx, func() error {
		_, err := createSession(ctx, client)
		return err
	})
}

// eventually tries until do works, for a minute at most, and gives its last error.
func eventually(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not in time: %w", err)
		case <-tick.C:
		}
	}
}

func createSession(ctx context.Context, client *apiclient.ClientWithResponses) (string, error) {
	created, err := client.CreateSessionWithResponse(ctx, nil, api.CreateSession{Runtime: recipe})
	if err != nil {
		return "", err
	}
	if created.JSON201 == nil {
		return "", fmt.Errorf("create a session: %s", created.Status())
	}
	return created.JSON201.ID, nil
}

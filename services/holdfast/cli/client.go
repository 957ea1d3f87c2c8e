package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// Options are the flags that every client command has.
type Options struct {
	URL, Token, As, DataDir, Tenant, Output string
}

// Flags adds them to a command and its children.
func (o *Options) Flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&o.URL, "url", "", "server (default $HOLDFAST_URL, else the dev that runs here)")
	f.StringVar(&o.Token, "token", "", "bearer token (default $HOLDFAST_TOKEN, else that of --as in the dev that runs here)")
	f.StringVar(&o.As, "as", "admin", "whose token of the dev that runs here to use: admin, alice, bob")
	f.StringVar(&o.DataDir, "data-dir", "", "data directory of the dev that runs here")
	f.StringVar(&o.Tenant, "tenant", "", "tenant, where you have several")
	f.StringVarP(&o.Output, "output", "o", "text", "output: text or json")
	Words(cmd, "output", "text", "json")
	if err := cmd.RegisterFlagCompletionFunc("as", o.People); err != nil {
		panic(err) // no such flag: a mistake in this function
	}
}

// ErrNoServer says that no server is named and no dev runs here.
var ErrNoServer = errors.New("no server: start one with 'holdfast dev', or name one in HOLDFAST_URL and HOLDFAST_TOKEN")

// Resolve fills in server and token: flags first, then the environment, then the
// dev that runs on the data directory.
func (o *Options) Resolve() (url, token string, err error) {
	url, token = firstOf(o.URL, os.Getenv("HOLDFAST_URL")), firstOf(o.Token, os.Getenv("HOLDFAST_TOKEN"))
	if url != "" && token != "" {
		return url, token, nil
	}
	dir, err := o.Directory()
	if err != nil {
		return "", "", err
	}
	if url == "" {
		server, err := dev.ReadServer(dir)
		if err != nil {
			return "", "", ErrNoServer
		}
		url = server.URL
	}
	if token == "" {
		if token, err = TokenOf(dir, o.As); err != nil {
			return "", "", err
		}
	}
	return url, token, nil
}

// Directory is the data directory of the dev that runs here, or would.
func (o *Options) Directory() (string, error) {
	if o.DataDir != "" {
		return o.DataDir, nil
	}
	return dev.DefaultDataDir()
}

// TokenOf reads somebody's token from a dev's data directory.
func TokenOf(dir, name string) (string, error) {
	entries, err := tokenfile.Read(dev.TokensFile(dir))
	if err != nil {
		return "", fmt.Errorf("tokens of %s: %w", dir, err)
	}
	i := slices.IndexFunc(entries, func(e tokenfile.Entry) bool { return e.Name == name })
	if i < 0 {
		var names []string
		for _, e := range entries {
			names = append(names, e.Name)
		}
		return "", usagef("no token for %q; there are %s", name, strings.Join(names, ", "))
	}
	return entries[i].Token, nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// Client gives the API's client.
func (o *Options) Client() (*apiclient.ClientWithResponses, error) {
	url, token, err := o.Resolve()
	if err != nil {
		return nil, err
	}
	c, err := apiclient.New(apiclient.Config{URL: url, Token: token, Tenant: o.Tenant})
	if err != nil {
		return nil, Usage(err) // its URL is none
	}
	return c, nil
}

// hint words a command of ours so that it can be typed here as it is.
func (o *Options) hint(args string) string {
	name := "holdfast"
	if self, err := os.Executable(); err == nil && strings.Contains(self, "go-build") {
		name = "go run ./services/holdfast"
	}
	if o.DataDir != "" {
		name += " --data-dir " + o.DataDir
	}
	return name + " " + args
}

// Exit codes.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRefused     = 3
	ExitUnreachable = 4
)

// ExitCode gives the exit code for an error of a command.
func ExitCode(err error) int {
	var (
		refused *api.Error
		usage   *usageError
		network *net.OpError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &refused):
		switch {
		case refused.Problem.Status >= http.StatusInternalServerError:
			return ExitUnreachable
		case refused.Problem.Status == http.StatusBadRequest:
			return ExitUsage // it doesn't fit the document, whatever the state
		}
		return ExitRefused
	case errors.Is(err, ErrNoServer), errors.As(err, &network) && network.Op != "listen", errors.Is(err, context.DeadlineExceeded):
		return ExitUnreachable
	}
	return ExitFailed
}

// usageError is a command typed wrongly.
type usageError struct{ err error }

// Error is that of what is wrong.
func (e *usageError) Error() string { return e.err.Error() }

// Unwrap gives what is wrong.
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Explain words an error for a person: a problem with its places and the way out.
func Explain(err error) string {
	var refused *api.Error
	if !errors.As(err, &refused) {
		var network *net.OpError
		if errors.As(err, &network) && network.Op == "dial" {
			return fmt.Sprintf("no server answers at %s: start one with 'holdfast dev', or correct HOLDFAST_URL", network.Addr)
		}
		return err.Error()
	}
	p := refused.Problem
	var text strings.Builder
	text.WriteString(p.Title)
	if p.Detail != "" {
		text.WriteString(": " + p.Detail)
	}
	if p.Winner.By != "" {
		fmt.Fprintf(&text, "\n  %s said %s at %s", p.Winner.By, p.Winner.Decision, clock(p.Winner.At))
	}
	for _, f := range p.Errors {
		fmt.Fprintf(&text, "\n  %s: %s", f.Pointer, f.Detail)
	}
	if p.Phase != "" && len(p.Allowed) > 0 {
		fmt.Fprintf(&text, "\n  it is %s; possible now: %s", p.Phase, strings.Join(p.Allowed, ", "))
	}
	fmt.Fprintf(&text, " (%s)", p.Code)
	return text.String()
}

// Usage marks an error as one of how a command was typed.
func Usage(err error) error { return &usageError{err} }

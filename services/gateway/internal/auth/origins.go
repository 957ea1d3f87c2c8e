package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Origins are where a browser may act from: what the gateway was told that browsers
// call it, and the browser's own machine. The zero Origins knows only the latter.
//
// A page that was loaded from loopback may act where its request went to that very
// address too, whatever the port: kubectl port-forward, ssh -L and a published port of
// a container all change it, and the gateway can't know to what. It is safe:
//
//   - The page and the request have one host and port, so the page came from here, or
//     from who passes on what we say. Another program's page on the same machine has
//     another port and so another Origin.
//   - A name that its owner points at 127.0.0.1 (DNS rebinding) stands in both headers
//     alike, and is neither an address nor localhost, which browsers ask no DNS for.
//   - A proxy that puts an address of loopback in the Host's place admits no page but
//     those of the person's own machine.
//
// Addresses elsewhere would be as safe from rebinding, but tokens and cookies would
// cross a network in clear: that has to be somebody's decision.
type Origins struct {
	named []string
}

// NewOrigins takes origins: "https://holdfast.example.com", with the port where it
// isn't the scheme's own. One that no browser would send is an error.
func NewOrigins(named []string) (Origins, error) {
	origins := Origins{named: make([]string, len(named))}
	for i, n := range named {
		var err error
		if origins.named[i], err = canonical(n); err != nil {
			return Origins{}, err
		}
	}
	return origins, nil
}

// asSent is an origin as browsers write it, its port apart: of names only the ASCII form.
var asSent = regexp.MustCompile(`^https?://([a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(:[1-9][0-9]{0,4})?$`)

// canonical writes an origin as browsers send it: in lower case, without the port that
// the scheme implies.
func canonical(origin string) (string, error) {
	sent := strings.ToLower(strings.TrimSuffix(origin, "/"))
	if !asSent.MatchString(sent) {
		return "", fmt.Errorf("origin %q: write one scheme, host and port, as browsers send them (xn--… for letters beyond ASCII), such as https://holdfast.example.com", origin)
	}
	if scheme, _, _ := strings.Cut(sent, ":"); scheme == "http" {
		return strings.TrimSuffix(sent, ":80"), nil
	}
	return strings.TrimSuffix(sent, ":443"), nil
}

// Check refuses a request whose Origin is none of these: 403, saying what to set.
func (o Origins) Check(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if slices.Contains(o.named, origin) || fromLoopback(origin, r.Host) {
		return nil
	}
	const rule = "A browser may do this only from this server's own pages"
	if !asSent.MatchString(origin) {
		return problem.New(api.CodeOriginRefused, rule+", which the header Origin has to name.")
	}
	return problem.Newf(api.CodeOriginRefused, rule+", and it doesn't know %s as one of them. If that is where people find it, "+
		"the gateway has to be told: --origin or HOLDFAST_ORIGINS, gateway.origins in the Helm chart.", origin)
}

// fromLoopback says whether a page and its request have one and the same address, on
// the browser's own machine. Plain http alone: who has TLS there has a proxy, and can
// name its origin.
func fromLoopback(origin, host string) bool {
	if origin != "http://"+host {
		return false
	}
	name := (&url.URL{Host: host}).Hostname()
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}

// secure says whether a browser came by https, so that its cookie may stay there.
func secure(r *http.Request) bool { return strings.HasPrefix(r.Header.Get("Origin"), "https://") }

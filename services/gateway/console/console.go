// Package console holds the web console: static files, embedded, made of HTML, CSS
// and JavaScript modules that browsers load as they are. There is no build step
// (docs/adr/0003-no-build-step.md), so what is in static/ is what is served.
//
// The console is a client like any other: it speaks the REST API and the
// WebSocket of api/openapi.yaml and api/asyncapi.yaml, with the cookie of
// POST /v1/login. A one-time code is taken from the URL's fragment,
// `/#code=<code>`, which browsers send to nobody; pages are fragments too
// (`/#/sessions/<id>`), so that the server needs to know none of them.
//
// The files keep to a strict Content-Security-Policy: no inline script, no inline
// style, nothing from elsewhere. A test of this package checks it.
//
//	static/index.html      the one page
//	static/css/            the design: tokens, layout, components
//	static/js/main.js      starts it; api, stream, store: the ways to the server
//	static/js/timeline.js  folds frames into what is shown of a session
//	static/js/tape.js      the history of a session for a replay; player.js plays it, moments.js has the states
//	static/js/text.js      shows what agents write as what it is
//	static/js/pages/       one file a page; static/js/components/ what they share
//	static/vendor/         preact, its hooks, and htm, with their licences
package console

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed static
var static embed.FS

// Files gives what is to be served at "/": index.html and all that it loads.
func Files() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(fmt.Sprintf("console: %v", err)) // the directory is embedded: it can't be missing
	}
	return files
}

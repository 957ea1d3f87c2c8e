package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"
)

const (
	// CookieName is the console's cookie.
	CookieName = "holdfast_session"
	// LoginLifetime is how long a cookie is good for.
	LoginLifetime = 12 * time.Hour
	// CodeLifetime is how long a one-time code is good for.
	CodeLifetime = 10 * time.Minute
	// maxLogins and maxCodes bound memory; the one that ends first gives way.
	maxLogins = 10_000
	maxCodes  = 1_000
)

// Logins are the browsers that are logged in and the codes that wait to be
// used. They live in memory: after a restart people log in again, and of several
// gateways each knows its own. Only names are kept, so that whoever is taken out of the tokens file is out at once.
type Logins struct {
	now func() time.Time

	mu     sync.Mutex
	logins map[[sha256.Size]byte]pass
	codes  map[[sha256.Size]byte]pass
}

// pass is a name until a time.
type pass struct {
	name  string
	until time.Time
}

// NewLogins makes an empty Logins.
func NewLogins(now func() time.Time) *Logins {
	return &Logins{now: now, logins: map[[sha256.Size]byte]pass{}, codes: map[[sha256.Size]byte]pass{}}
}

// NewCode makes a code that logs in as name, once.
func (l *Logins) NewCode(name string) string {
	return l.put(l.codes, name, CodeLifetime, maxCodes)
}

// Redeem takes a code and gives whose it was. A code is good once, so a second
// attempt finds nothing.
func (l *Logins) Redeem(code string) (name string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := sha256.Sum256([]byte(code))
	p, ok := l.codes[key]
	delete(l.codes, key)
	return p.name, ok && l.now().Before(p.until)
}

// Begin logs a browser in and gives its cookie; secure says that it came by https.
func (l *Logins) Begin(name string, secure bool) *http.Cookie {
	return cookie(l.put(l.logins, name, LoginLifetime, maxLogins), int(LoginLifetime/time.Second), secure)
}

// End logs the browser out that has this cookie, and gives the cookie that takes
// it back. A value that is no login's changes nothing.
func (l *Logins) End(value string, secure bool) *http.Cookie {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.logins, sha256.Sum256([]byte(value)))
	return cookie("", -1, secure)
}

// Lookup gives who is logged in under a cookie's value.
func (l *Logins) Lookup(value string) (name string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.logins[sha256.Sum256([]byte(value))]
	return p.name, ok && l.now().Before(p.until)
}

func cookie(value string, maxAge int, secure bool) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure where the browser came by https; dev serves http on loopback
		Name: CookieName, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// put keeps a fresh secret's hash as a key: whoever reads the memory, or times
// the look-up, learns no secret.
func (l *Logins) put(passes map[[sha256.Size]byte]pass, name string, lifetime time.Duration, most int) string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	secret := base64.RawURLEncoding.EncodeToString(b[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(passes) >= most {
		makeRoom(passes, now)
	}
	passes[sha256.Sum256([]byte(secret))] = pass{name: name, until: now.Add(lifetime)}
	return secret
}

// makeRoom drops what is over and, where nothing is, what ends first.
func makeRoom(passes map[[sha256.Size]byte]pass, now time.Time) {
	var first [sha256.Size]byte
	var until time.Time
	before := len(passes)
	for key, p := range passes {
		if !now.Before(p.until) {
			delete(passes, key)
		} else if until.IsZero() || p.until.Before(until) {
			first, until = key, p.until
		}
	}
	if len(passes) == before {
		delete(passes, first)
	}
}

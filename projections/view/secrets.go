package view

import (
	"regexp"
	"strings"
)

// rule recognises secrets by their form. The first group that matched is what is
// masked, or the whole match where the rule has no group.
type rule struct {
	pattern *regexp.Regexp
	// hints are what a match has to contain, in lower case, one of them.
	hints []string
	// spares says of a match that it is none after all.
	spares func(match []string, value string) bool
}

// value is a shell word or a quoted text.
const value = `("[^"]*"|'[^']*'|[^\s"'&;|<>,)}\]]+)`

// secretWord is the end of a name whose value is a secret.
const secretWord = `(?:password|passwd|passphrase|[a-z0-9]_?pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)`

var rules = []rule{
	{hints: []string{"private key"}, pattern: regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	// Keys that carry their issuer's mark: AWS, GitHub, GitLab, Slack, OpenAI and
	// Anthropic, Stripe, Google, npm, and JSON web tokens.
	{hints: []string{"akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "aiza", "npm_", "eyj"}, pattern: regexp.MustCompile(`\b(?:` + strings.Join([]string{
		`(?:AKIA|ASIA)[0-9A-Z]{16}`,
		`gh[pousr]_[A-Za-z0-9]{20,}`,
		`github_pat_\w{20,}`,
		`glpat-[\w-]{16,}`,
		`xox[abeoprs]-[A-Za-z0-9-]{10,}`,
		`sk-[A-Za-z0-9_-]{20,}`,
		`[rs]k_(?:live|test)_[A-Za-z0-9]{10,}`,
		`AIza[\w-]{30,}`,
		`npm_[A-Za-z0-9]{30,}`,
		`eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*`,
	}, "|") + `)`)},
	{hints: []string{"authorization"}, pattern: regexp.MustCompile(`(?i)\bauthorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token|digest)\s+)?([^\s"',;]+)`), spares: reference},
	{hints: []string{"bearer", "basic"}, pattern: regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{12,})`), spares: prose},
	{hints: []string{"pass", "pwd", "secret", "token", "key", "credential"}, pattern: regexp.MustCompile(`(?i)(` + secretWord + `)["']?\s*[=:]\s*` + value), spares: reference},
	{hints: []string{"pass", "secret", "token", "key"}, pattern: regexp.MustCompile(`(?i)-[\w-]*(?:password|passwd|passphrase|secret|token|api-?key)[ \t]+("[^"]*"|'[^']*'|[^\s"'&;|<>-][^\s"'&;|<>]*)`), spares: reference},
	{hints: []string{"curl"}, pattern: regexp.MustCompile(`(?i)\bcurl\b[^\n|;&]*?\s(?:-u|--user)[ =]?["']?[^\s:"']+:([^\s"']+)`), spares: reference},
	{hints: []string{"sshpass"}, pattern: regexp.MustCompile(`\bsshpass\s+-p\s*` + value), spares: reference},
	{hints: []string{"://"}, pattern: regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*:([^\s/@"']+)@`), spares: reference},
}

// reference spares a value that only names where the secret is, as a shell
// variable does. In single quotes it would be the secret itself.
func reference(match []string, value string) bool {
	if len(value) < 2 || value[0] != '$' || strings.Contains(match[0], "'"+value) {
		return false
	}
	c := value[1]
	return c == '{' || c == '(' || c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// prose spares what is only a word: "basic understanding".
func prose(_ []string, value string) bool { return !strings.ContainsAny(value, "0123456789._~+/=") }

// maskSecrets masks until nothing is recognised any more: what one rule masks may
// give another its word boundary, and masking twice has to be masking once.
func maskSecrets(s string) string {
	worth := hinted(s) // masking only takes away
	if worth == 0 {
		return s
	}
	for {
		before := s
		for i, r := range rules {
			if worth&(1<<i) != 0 {
				s = r.mask(s)
			}
		}
		if s == before {
			return s
		}
	}
}

func (r rule) mask(s string) string {
	found := r.pattern.FindAllStringSubmatchIndex(s, -1)
	if found == nil {
		return s
	}
	var b strings.Builder
	done := 0
	for _, at := range found {
		from, to := at[len(at)-2], at[len(at)-1]
		if to-from >= 2 && (s[from] == '"' || s[from] == '\'') && s[to-1] == s[from] {
			from, to = from+1, to-1
		}
		v := s[from:to]
		if v == "" || strings.HasPrefix(v, "‹masked") {
			continue
		}
		if r.spares != nil && r.spares([]string{s[at[0]:at[1]]}, v) {
			continue
		}
		b.WriteString(s[done:from])
		b.WriteString(placeholder(to - from))
		done = to
	}
	b.WriteString(s[done:])
	return b.String()
}

// secretNames end the names of members whose value is a secret, in lower case and
// without - and _.
var secretNames = []string{
	"password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "secretkey", "privatekey",
	"authorization", "credential", "credentials",
}

var undashed = strings.NewReplacer("-", "", "_", "")

// secretName says whether a member's name announces a secret: apiKey, db_password.
func secretName(key string) bool {
	name := undashed.Replace(strings.ToLower(key))
	for _, end := range secretNames {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

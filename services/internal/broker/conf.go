package broker

import (
	"fmt"
	"strings"
)

// Conf writes the authorization block of nats.conf: the same users and permissions
// for a NATS that runs by itself. Passwords are taken by the server from its
// environment, HOLDFAST_NATS_PASSWORD_<USER>, and may be bcrypt hashes.
func Conf() string {
	var b strings.Builder
	b.WriteString("# Written by Holdfast from services/internal/broker/permissions.go; change it there.\n")
	b.WriteString("authorization {\n  users = [\n")
	for _, u := range Users() {
		g := grantsOf(u)
		fmt.Fprintf(&b, "    {\n      user: %q\n      password: $%s\n      permissions {\n", u, PasswordVariable(u))
		fmt.Fprintf(&b, "        publish {\n          allow: %s\n", list(g.publish))
		if len(g.deny) > 0 {
			fmt.Fprintf(&b, "          deny: %s\n", list(g.deny))
		}
		fmt.Fprintf(&b, "        }\n        subscribe {\n          allow: %s\n        }\n", list(g.subscribe))
		if g.answers {
			fmt.Fprintf(&b, "        allow_responses { max: %d, expires: %q }\n", maxAnswers, answerWithin)
		}
		b.WriteString("      }\n    }\n")
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

// EnvURL names the environment variable with the NATS of an installation: one
// server's URL, or several, comma separated.
const EnvURL = "HOLDFAST_NATS_URL"

// PasswordVariable names the environment variable with a user's password, the same
// for the server and for `holdfast serve`.
func PasswordVariable(u User) string { return "HOLDFAST_NATS_PASSWORD_" + strings.ToUpper(string(u)) }

func list(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = fmt.Sprintf("            %q", s)
	}
	return "[\n" + strings.Join(quoted, "\n") + "\n          ]"
}

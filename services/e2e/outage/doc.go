// Package outage takes from the whole program what it stands on: Postgres while
// people work, the log's newest part, the whole log. Nothing accepted may be lost,
// and what can't be known may not be acted on.
package outage

package events

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that reads and writes as "15m" in JSON and YAML.
type Duration time.Duration

// D gives the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String is that of time.Duration.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes a string such as "1h0m0s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a string that time.ParseDuration takes.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration: want a string such as \"15m\": %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	*d = Duration(v)
	return nil
}

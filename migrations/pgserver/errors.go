package pgserver

import (
	"fmt"
	"strings"
)

// MinMajor is the oldest PostgreSQL that Holdfast runs on.
const MinMajor = 15

// EnvBin names the environment variable with the folder of PostgreSQL's
// programs, for machines where they are nowhere usual.
const EnvBin = "HOLDFAST_POSTGRES_BIN"

// MissingError says that no usable PostgreSQL programs were found.
type MissingError struct {
	// Looked lists the places in the order they were looked at, each with what
	// was wrong there.
	Looked []string
}

// Error names what is missing and the ways out.
func (e *MissingError) Error() string {
	return fmt.Sprintf("PostgreSQL %d or newer (initdb and postgres) is needed and was not found (%s). "+
		"Install it (apt-get install postgresql, dnf install postgresql-server, apk add postgresql), "+
		"or set %s to the folder of its programs",
		MinMajor, strings.Join(e.Looked, "; "), EnvBin)
}

// VersionError says that the data was written by a major version of PostgreSQL
// that is not installed.
type VersionError struct {
	// Dir is the server's folder, Data the version of its data, Found that of
	// the programs.
	Dir         string
	Data, Found int
}

// Error names both versions and the ways out.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the data in %s is of PostgreSQL %d, found is %d. "+
		"Install postgresql-%d (or set %s to its programs), or start with a new folder",
		e.Dir, e.Data, e.Found, e.Data, EnvBin)
}

// InUseError says that the folder belongs to somebody who is alive.
type InUseError struct {
	// Dir is the server's folder.
	Dir string
	// PID is the process: of the holder, or of the server when Server is set.
	// 0 when the holder has not written it yet.
	PID int
	// Server says that it is a PostgreSQL server that nobody we know runs.
	Server bool
}

// Error names the process and the way out.
func (e *InUseError) Error() string {
	if e.Server {
		return fmt.Sprintf("a PostgreSQL server (process %d) runs on %s. "+
			"Stop it (kill -INT %d), or start with another folder", e.PID, e.Dir, e.PID)
	}
	return fmt.Sprintf("%s is in use by process %d. Stop it, or start with another folder", e.Dir, e.PID)
}

// ExitError says that the server ended without being asked to, or never came
// up.
type ExitError struct {
	// Status is the process's, as "exit status 1" or "signal: killed".
	Status string
	// Log is the end of what the server printed.
	Log []string
}

// Error gives the status and the last lines.
func (e *ExitError) Error() string {
	if len(e.Log) == 0 {
		return "PostgreSQL ended by itself: " + e.Status
	}
	return fmt.Sprintf("PostgreSQL ended by itself: %s: %s", e.Status, strings.Join(e.Log, " / "))
}

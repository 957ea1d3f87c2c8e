// Package faults kills the built program at named places (package failpoint) and
// proves, after a start on the same data, that nothing accepted was lost, nothing
// ran twice, no session is stuck and no sandbox is left. Its tests are built with
// the tag "failpoint": make test-faults.
package faults

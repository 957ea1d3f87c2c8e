// Package failpoint lets a test kill the process at a named place, to prove that
// what may crash between two steps does so safely. In an ordinary build Hit does
// nothing and costs nothing; under the build tag "failpoint" a process whose
// HOLDFAST_FAILPOINT is the name (or "name#3" for its third hit) writes the name
// to the file HOLDFAST_FAILPOINT_FILE, so that the test can prove that the place
// was reached, and kills itself with SIGKILL.
package failpoint

// Package operate holds the commands that run Holdfast rather than use it: dev,
// serve, install, token, projections, doctor, version.
package operate

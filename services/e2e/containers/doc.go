// Package containers runs Holdfast as an installation does, in containers: three
// clustered NATS servers, Postgres, two replicas of each service and a host, each a
// container of the images that docker-compose.yml runs. Then containers are killed
// and paused one after the other.
//
// Its tests have the build tag containers, and need a Docker daemon and the image
// holdfast:local: `make test-containers` sees to both.
//
//	what is looked at, around each fault
//	─────────────────────────────────────────────────────────────────────────────
//	while it lasts   a command is accepted, or answered with a problem that has a code
//	                 and may be tried again; never left without an answer
//	afterwards       every part is ready again by itself; what was accepted is done,
//	                 once; what was not is accepted under the same key; a question
//	                 asked before is answered, and its agent goes on
//	in the end       the whole log is held to events/invariants
package containers

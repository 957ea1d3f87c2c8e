// Package aguinorth tests Holdfast as AG-UI clients meet it: POST
// /v1/runtimes/{name}/agui of a whole running program, spoken to by hand, event for
// event, and by the official client from npm (client/, `make test-agui`).
package aguinorth

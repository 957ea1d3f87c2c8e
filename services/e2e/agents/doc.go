// Package agents tests agents that are not Holdfast's own, on the whole program: each
// example of examples/ through real sandboxes, by one suite, so that adapters and
// languages behave alike; and rogue agents, which break the protocol in every way and
// fail their run, not their session.
//
// The example with LangGraph is installed from the npm registry into the user's cache
// folder. Without node, npm or the registry it is skipped, loudly; with
// HOLDFAST_REQUIRE_NPM=1, as in CI, it fails instead.
package agents

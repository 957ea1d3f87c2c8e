// Package agentserver is the generated server of the agents' listener,
// /v1/agent/*. It is apart from apiserver so that neither listener can serve
// the other's calls by mistake.
package agentserver

// Package api is the contract between Holdfast and its clients: the REST API
// in openapi.yaml, the WebSocket in asyncapi.yaml, and what is generated from
// the first of them.
//
//	api          types of both (types.gen.go, ws.go), problems, the documents themselves
//	apiserver    chi server of the public listener, strict: typed requests and answers
//	agentserver  the same for the agents' listener, /v1/agent/*
//	apiclient    client of everything; a problem comes back as *[Error]
//	apispec      the parsed document: routes, roles and validation for the gateway
//
// Streams, the WebSocket, invocations, health and metrics are in the document
// but not in the generated servers, because their bodies flow; the gateway
// routes them by hand and finds their operations through apispec.
//
// The documents are the source. Change them, run `make generate`, and commit
// both.
package api

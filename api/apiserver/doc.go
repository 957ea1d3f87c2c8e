// Package apiserver is the generated server of the public listener: one method
// of StrictServerInterface for each operation, with typed requests and
// answers. Return an *api.Error for a problem; the gateway's
// ResponseErrorHandlerFunc writes it. Streams, the WebSocket, invocations,
// health and metrics are not here; see package api.
package apiserver

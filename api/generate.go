package api

import _ "embed"

//go:generate ../scripts/generate.sh api

// OpenAPI is openapi.yaml, the source of truth for REST and for the frames.
//
//go:embed openapi.yaml
var OpenAPI []byte

// AsyncAPI is asyncapi.yaml, the source of truth for the WebSocket.
//
//go:embed asyncapi.yaml
var AsyncAPI []byte

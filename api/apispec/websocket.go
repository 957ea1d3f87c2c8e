package apispec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"github.com/holdfast-io/holdfast/api"
)

// wsPrefix keeps the names of asyncapi.yaml's schemas apart from those of
// openapi.yaml where both stand in one document.
const wsPrefix = "ws."

// asyncDocument is what we read of asyncapi.yaml.
type asyncDocument struct {
	Components struct {
		Schemas map[string]struct {
			Schema map[string]any `yaml:"schema"`
		} `yaml:"schemas"`
	} `yaml:"components"`
	CloseCodes map[api.CloseCode]struct {
		Name      string `yaml:"name"`
		Reconnect bool   `yaml:"reconnect"`
	} `yaml:"x-close-codes"`
}

// wsSchemas are the schemas of the WebSocket's messages by type, with what they
// refer to in openapi.yaml resolved. As with parsed, failing is a broken build.
var wsSchemas = sync.OnceValue(func() map[api.WSType]*openapi3.Schema {
	schemas, err := parseWS(api.AsyncAPI, api.OpenAPI)
	if err != nil {
		panic(fmt.Sprintf("apispec: embedded asyncapi.yaml: %v", err))
	}
	return schemas
})

// parseWS puts the messages' schemas beside openapi.yaml's, where references
// between the two are ordinary ones. The loader takes JSON as it takes YAML.
func parseWS(async, open []byte) (map[api.WSType]*openapi3.Schema, error) {
	var messages asyncDocument
	if err := yaml.Unmarshal(async, &messages); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	var whole map[string]any
	if err := yaml.Unmarshal(open, &whole); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	components, _ := whole["components"].(map[string]any)
	schemas, ok := components["schemas"].(map[string]any)
	if !ok {
		return nil, errors.New("openapi.yaml has no schemas")
	}
	for name, message := range messages.Components.Schemas {
		schemas[wsPrefix+name] = message.Schema
	}
	joined, err := json.Marshal(map[string]any{
		"openapi": "3.0.3", "info": map[string]any{"title": "messages", "version": "v1"},
		"paths": map[string]any{}, "components": map[string]any{"schemas": schemas},
	})
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	joined = []byte(strings.ReplaceAll(string(joined), `"openapi.yaml#/`, `"#/`))
	doc, err := openapi3.NewLoader().LoadFromData(joined)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("validate: %w", err)
	}
	byType := map[api.WSType]*openapi3.Schema{}
	for name := range messages.Components.Schemas {
		byType[api.WSType(name)] = doc.Components.Schemas[wsPrefix+name].Value
	}
	return byType, nil
}

// wsRequests are the messages that a client may send.
var wsRequests = map[api.WSType]bool{
	api.WSTypeSubscribe: true, api.WSTypeUnsubscribe: true, api.WSTypeDecide: true, api.WSTypeMessage: true, api.WSTypePing: true,
}

// DecodeWSRequest checks what a client sent over the WebSocket against
// asyncapi.yaml, as strictly as a REST call, and gives the request. On error
// ref is the request's, as far as it could be read, for the answer; the error
// is an *api.Error with the places that are wrong. What isn't even a JSON
// object with one of the requests' types gives a plain error: the peer speaks
// something else, so close with [api.CloseBadMessage].
func DecodeWSRequest(data []byte) (request api.WSMessage, ref string, err error) {
	var head struct {
		Type api.WSType `json:"type"`
		Ref  any        `json:"ref"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, "", fmt.Errorf("message is not a JSON object: %w", err)
	}
	if !wsRequests[head.Type] {
		return nil, "", fmt.Errorf("%w: %.64q", api.ErrUnknownWSType, head.Type)
	}
	ref, _ = head.Ref.(string)
	ref = bounded(ref, 64)
	if err := validateWS(head.Type, data); err != nil {
		return nil, ref, err
	}
	request, err = api.DecodeWS(data)
	if err != nil {
		return nil, ref, fmt.Errorf("after validation: %w", err)
	}
	return request, ref, nil
}

// ValidateWS checks any message, also the gateway's own, against its schema in
// asyncapi.yaml; an enclosed frame also by its kind. It is for tests of those
// who write messages.
func ValidateWS(data []byte) error {
	var head struct {
		Type  api.WSType      `json:"type"`
		Frame json.RawMessage `json:"frame"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	if err := validateWS(head.Type, data); err != nil {
		return err
	}
	if head.Type == api.WSTypeFrame {
		return ValidateFrame(head.Frame)
	}
	return nil
}

// validateWS checks a message of a type; the error is an *api.Error.
func validateWS(t api.WSType, data []byte) error {
	schema, ok := wsSchemas()[t]
	if !ok {
		return fmt.Errorf("%w: %.64q", api.ErrUnknownWSType, t)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	err := schema.VisitJSON(value, openapi3.MultiErrors(), openapi3.EnableFormatValidation())
	if err == nil {
		return nil
	}
	problem := api.Err(api.CodeInvalidRequest)
	problem.Problem.Detail = "The message doesn't fit " + string(t) + "."
	problem.Problem.Errors = schemaFields("", err)
	return problem
}

// Package deps pins dependencies while the first code is written.
package deps
import (
_ "github.com/getkin/kin-openapi/openapi3"
_ "github.com/getkin/kin-openapi/openapi3filter"
_ "github.com/go-chi/chi/v5"
_ "github.com/oapi-codegen/runtime"
_ "github.com/oapi-codegen/runtime/types"
)

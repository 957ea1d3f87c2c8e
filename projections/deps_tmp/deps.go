// Package deps pins dependencies while the first code is written.
package deps
import (
_ "github.com/jackc/pgx/v5/pgxpool"
_ "github.com/hashicorp/golang-lru/v2"
_ "golang.org/x/sync/errgroup"
)

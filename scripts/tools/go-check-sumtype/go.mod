// Checks that a switch over a sealed event or command type names every case.
module github.com/holdfast-io/holdfast/scripts/tools/go-check-sumtype

go 1.26.0

tool github.com/alecthomas/go-check-sumtype/cmd/go-check-sumtype

require (
	github.com/alecthomas/go-check-sumtype v0.3.1 // indirect
	golang.org/x/mod v0.22.0 // indirect
	golang.org/x/sync v0.9.0 // indirect
	golang.org/x/tools v0.27.0 // indirect
)

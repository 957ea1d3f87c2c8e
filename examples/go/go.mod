module github.com/holdfast-io/holdfast/examples/go

go 1.26

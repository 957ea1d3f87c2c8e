// Command etcd is etcd itself, as its own main package would build it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	_ "github.com/holdfast-io/holdfast/scripts/kube/parent"
)

func main() { etcdmain.Main(os.Args) }

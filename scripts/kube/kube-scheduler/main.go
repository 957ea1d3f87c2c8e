// Command kube-scheduler is Kubernetes' scheduler, as its own main package would build it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "github.com/holdfast-io/holdfast/scripts/kube/parent"
)

func main() { os.Exit(cli.Run(app.NewSchedulerCommand())) }

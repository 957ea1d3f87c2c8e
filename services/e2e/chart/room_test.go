package chart_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	installer "github.com/holdfast-io/holdfast/services/internal/install"
)

// installed is what a rendering says of the log's room.
type installed struct {
	opts installer.Options // as the Job has them
	job  string            // its name: another one runs again
	conf string            // of the servers; empty where the chart brings none
	disk int64             // of each, in bytes
}

func installedBy(t *testing.T, objects []client.Object) installed {
	t.Helper()
	var in installed
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if conf, is := o.Data["nats.conf"]; is {
				in.conf = conf
			}
		case *appsv1.StatefulSet:
			if strings.HasSuffix(o.Name, "-nats") {
				in.disk = o.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().Value()
			}
		case *batchv1.Job:
			in.job = o.Name
		}
	}
	f := flag.NewFlagSet("install", flag.ContinueOnError)
	f.IntVar(&in.opts.Replicas, "replicas", 0, "")
	f.Int64Var(&in.opts.LogMaxBytes, "log-max-bytes", 0, "")
	if err := f.Parse(pods(objects)["install"].Spec.Containers[0].Args[1:]); err != nil {
		t.Fatal(err)
	}
	return in
}

// options are a server's, as it reads them from the rendered file, but for one that is
// alone, on loopback, with its files in dir.
func (in installed) options(t *testing.T, dir string) *server.Options {
	t.Helper()
	for _, u := range broker.Users() {
		t.Setenv(broker.PasswordVariable(u), "p-"+string(u))
	}
	t.Setenv("HOLDFAST_NATS_PASSWORD_ROUTE", "p-route")
	t.Setenv("HOLDFAST_NATS_NAME", "nats-0")
	t.Setenv("HOLDFAST_NATS_ROUTES", "[]")
	conf := t.TempDir()
	if err := os.MkdirAll(filepath.Join(conf, "authorization"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"nats.conf": in.conf, "authorization/authorization.conf": broker.Conf()} {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts, err := server.ProcessConfigFile(filepath.Join(conf, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	opts.StoreDir, opts.PidFile, opts.Cluster, opts.Routes = dir, "", server.ClusterOpts{}, nil
	opts.Host, opts.Port, opts.HTTPPort, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, true, true
	return opts
}

// serve starts such a server and gives its JetStream to the installer, until stop.
func serve(t *testing.T, opts *server.Options) (js jetstream.JetStream, stop func()) {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server isn't ready")
	}
	nc, err := broker.Connect(t.Context(), broker.Client{
		URL: s.ClientURL(), User: broker.UserInstaller, Password: "p-" + string(broker.UserInstaller), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = func() { nc.Close(); s.Shutdown(); s.WaitForShutdown() }
	t.Cleanup(stop)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return js, stop
}

func limitOf(t *testing.T, js jetstream.JetStream, stream string) int64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.MaxBytes
}

// What the installer's streams reserve has room in what the servers are told that they
// may take, and that on the disk: a real server of that configuration takes the
// installation.
func TestTheLogFitsOnTheDisk(t *testing.T) {
	for name, file := range valuesFiles(t) {
		t.Run(name, func(t *testing.T) {
			in := installedBy(t, render(t, withValues(file)...))
			if in.opts.LogMaxBytes == 0 {
				t.Error("the log has no limit: nothing says that the disk is nearly full")
			}
			if in.conf == "" {
				t.Skip("its NATS is somebody else's")
			}
			opts := in.options(t, t.TempDir())
			reserved, err := in.opts.Reserved()
			if err != nil {
				t.Fatal(err)
			}
			if room := opts.JetStreamMaxStore; room <= 0 || reserved > room || room > in.disk*9/10 {
				t.Errorf("streams reserve %d bytes and may take %d (0 is what happens to be free), on a disk of %d", reserved, room, in.disk)
			}
			js, _ := serve(t, opts)
			in.opts.Replicas = 1 // each server's share is the same
			if _, err := installer.RunWith(t.Context(), js, in.opts); err != nil {
				t.Error(err)
			}
		})
	}
}

// The chart takes a log that just fits and no larger one: it counts as the installer does.
func TestALogThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	for _, gib := range []int64{3, 20, 2048} {
		beside, err := installer.Options{}.Reserved()
		if err != nil {
			t.Fatal(err)
		}
		most := (gib<<30*4/5 - beside) / 2
		for log, refused := range map[int64]bool{most: false, most + 1: true, 0: true} {
			set := fmt.Sprintf("nats.storage.size=%dGi,install.logMaxBytes=%d", gib, log)
			_, err := helm(t, "", "template", release, filepath.Join(root, "deploy/chart"), "--namespace", namespace, "--set", set)
			if (err != nil) != refused {
				t.Errorf("--set %s: %v", set, err)
			}
			if refused && err != nil && (!strings.Contains(err.Error(), "install.logMaxBytes") || !strings.Contains(err.Error(), strconv.FormatInt(most, 10))) {
				t.Errorf("--set %s: %v; it should say what fits: %d", set, err, most)
			}
		}
	}
}

// More room, as docs/operations.md has it: until the servers have started with what the
// larger disk gives the installer is refused and nothing is changed, and then the streams
// that are there get it, with what is in them. The Job is another one, which runs again,
// and the servers' Pods are others, which are started anew.
func TestALargerDiskGivesTheLogMore(t *testing.T) {
	before := render(t)
	after := render(t, "--set", "nats.storage.size=40Gi,install.logMaxBytes=16106127360")
	small, large := installedBy(t, before), installedBy(t, after)
	small.opts.Replicas, large.opts.Replicas = 1, 1
	dir := t.TempDir()

	js, stop := serve(t, small.options(t, dir))
	genesis, err := installer.RunWith(t.Context(), js, small.opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := installer.RunWith(t.Context(), js, large.opts); err == nil {
		t.Error("a server whose disk is small took it")
	}
	if got := limitOf(t, js, events.StreamEvents); got != small.opts.LogMaxBytes {
		t.Errorf("a limit that was refused is %d", got)
	}
	stop()

	js, _ = serve(t, large.options(t, dir))
	again, err := installer.RunWith(t.Context(), js, large.opts)
	if err != nil || again != genesis {
		t.Errorf("%+v, %v; want the log %+v", again, err, genesis)
	}
	for _, stream := range []string{events.StreamEvents, events.StreamBlobs} {
		if got := limitOf(t, js, stream); got != large.opts.LogMaxBytes {
			t.Errorf("%s may take %d, want %d", stream, got, large.opts.LogMaxBytes)
		}
	}

	if small.job == large.job {
		t.Errorf("the Job is %s as before: it wouldn't run", small.job)
	}
	if a, b := pods(before)[release+"-nats"].Annotations, pods(after)[release+"-nats"].Annotations; len(a) == 0 || fmt.Sprint(a) == fmt.Sprint(b) {
		t.Errorf("the servers' Pods are as before, %v: they wouldn't start anew", a)
	}
}

package onenode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (n *Node) startEtcd(ctx context.Context) error {
	p, err := n.launch("etcd", "--data-dir", n.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "default=http://127.0.0.1:2380", "--log-level", "warn")
	if err != nil {
		return err
	}
	return p.await(ctx, func(ctx context.Context) error { return healthy(ctx, http.DefaultClient, etcdURL+"/health") })
}

func healthy(ctx context.Context, c *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return errors.Join(err, res.Body.Close())
}

func (n *Node) startAPIServer(ctx context.Context) error {
	p, err := n.launch("kube-apiserver",
		"--etcd-servers", etcdURL,
		"--bind-address", NodeIP, "--advertise-address", NodeIP, "--secure-port", apiPort,
		"--tls-cert-file", n.ca.certFile("apiserver"), "--tls-private-key-file", n.ca.keyFile("apiserver"),
		"--client-ca-file", n.ca.certFile("ca"), "--cert-dir", n.path("pki"),
		"--service-cluster-ip-range", serviceNet,
		"--service-account-issuer", "https://kubernetes.default.svc."+domain,
		"--service-account-signing-key-file", n.ca.keyFile("accounts"), "--service-account-key-file", n.ca.keyFile("accounts"),
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--kubelet-certificate-authority", n.ca.certFile("ca"), "--kubelet-preferred-address-types", "InternalIP",
		"--kubelet-client-certificate", n.ca.certFile("kubelet-client"), "--kubelet-client-key", n.ca.keyFile("kubelet-client"),
		"--allow-privileged")
	if err != nil {
		return err
	}
	https, err := rest.HTTPClientFor(n.Config)
	if err != nil {
		return err
	}
	if err := p.await(ctx, func(ctx context.Context) error {
		return healthy(ctx, https, "https://"+NodeIP+":"+apiPort+"/readyz")
	}); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	n.Client, err = client.NewWithWatch(n.Config, client.Options{Scheme: scheme})
	return err
}

func (n *Node) startControllers(context.Context) error {
	_, err := n.launch("kube-controller-manager",
		"--kubeconfig", n.ca.kubeconfigFile("controller-manager"), "--bind-address", "127.0.0.1", "--leader-elect=false",
		"--service-account-private-key-file", n.ca.keyFile("accounts"), "--root-ca-file", n.ca.certFile("ca"),
		"--use-service-account-credentials", "--cert-dir", n.path("pki"), "--flex-volume-plugin-dir", n.path("conf", "plugins"))
	return err
}

func (n *Node) startScheduler(context.Context) error {
	_, err := n.launch("kube-scheduler",
		"--kubeconfig", n.ca.kubeconfigFile("scheduler"), "--bind-address", "127.0.0.1", "--leader-elect=false", "--cert-dir", n.path("pki"))
	return err
}

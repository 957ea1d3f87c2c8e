package onenode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs what the parts of the cluster show each other.
type authority struct {
	layout
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// newAuthority makes one, and the key that service accounts' tokens are signed with.
func newAuthority(l layout) (*authority, error) {
	a := &authority{layout: l}
	ca := a.template(pkix.Name{CommonName: "onenode"})
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage |= x509.KeyUsageCertSign
	key, err := a.newKey("ca")
	if err != nil {
		return nil, err
	}
	a.cert, a.key = ca, key
	der, err := a.sign("ca", ca, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	_, err = a.newKey("accounts")
	return a, err
}

func (a *authority) template(who pkix.Name) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: who,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

func (a *authority) certFile(name string) string { return a.path("pki", name+".crt") }
func (a *authority) keyFile(name string) string  { return a.path("pki", name+".key") }

func (a *authority) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(a.keyFile(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (a *authority) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return der, os.WriteFile(a.certFile(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// issue makes a certificate for who, which may serve under hosts.
func (a *authority) issue(name string, who pkix.Name, hosts ...string) error {
	template := a.template(who)
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key, err := a.newKey(name)
	if err != nil {
		return err
	}
	_, err = a.sign(name, template, key)
	return err
}

// issueAll makes the certificate of every part, and the kubeconfig of each that asks
// the API server.
func (a *authority) issueAll() error {
	if err := a.issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, NodeIP, apiService, "127.0.0.1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+domain); err != nil {
		return err
	}
	for name, who := range map[string]pkix.Name{
		"admin":              {CommonName: "admin", Organization: []string{"system:masters"}},
		"kubelet-client":     {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		"proxy":              {CommonName: "system:kube-proxy"},
		"node":               {CommonName: "system:node:" + NodeName, Organization: []string{"system:nodes"}},
	} {
		if err := a.issue(name, who, NodeIP, NodeName); err != nil {
			return fmt.Errorf("certificate of %s: %w", name, err)
		}
		if err := a.kubeconfig(name); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
	}
	return nil
}

func (a *authority) kubeconfigFile(name string) string { return a.path("conf", name+".kubeconfig") }

func (a *authority) kubeconfig(name string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["onenode"] = &clientcmdapi.Cluster{Server: "https://" + NodeIP + ":" + apiPort, CertificateAuthority: a.certFile("ca")}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: a.certFile(name), ClientKey: a.keyFile(name)}
	config.Contexts["onenode"] = &clientcmdapi.Context{Cluster: "onenode", AuthInfo: name}
	config.CurrentContext = "onenode"
	return clientcmd.WriteToFile(*config, a.kubeconfigFile(name))
}

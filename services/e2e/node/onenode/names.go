package onenode

import (
	"context"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// startNames answers for the names of Services: a cluster leaves its DNS to an add-on.
func (n *Node) startNames(context.Context) error {
	conn, err := net.ListenPacket("udp", NodeIP+":53")
	if err != nil {
		return err
	}
	n.loops.run(func(ctx context.Context) {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		packet := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(packet)
			if err != nil {
				return // closed
			}
			if reply, ok := n.answer(ctx, packet[:size]); ok {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	return nil
}

// answer is a reply to a packet that asks for one name; another packet has none.
func (n *Node) answer(ctx context.Context, packet []byte) ([]byte, bool) {
	var question dnsmessage.Message
	if err := question.Unpack(packet); err != nil || len(question.Questions) != 1 || question.Response {
		return nil, false
	}
	asked := question.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: question.ID, Response: true, Authoritative: true, RecursionDesired: question.RecursionDesired, RecursionAvailable: true},
		Questions: question.Questions,
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	addresses, known := n.lookup(ctx, asked.Name.String())
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	if asked.Type == dnsmessage.TypeA {
		for _, a := range addresses {
			ip := net.ParseIP(a).To4()
			if ip == nil {
				continue
			}
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(ip)},
			})
		}
	}
	packed, err := reply.Pack()
	return packed, err == nil
}

// lookup resolves <service>.<namespace>.svc.<domain> to the Service's address, or to
// those of all its Pods where it has none; and <pod>.<service>… to that Pod's.
func (n *Node) lookup(ctx context.Context, name string) (addresses []string, known bool) {
	name, ours := strings.CutSuffix(strings.ToLower(name), ".svc."+domain+".")
	labels := strings.Split(name, ".")
	if !ours || len(labels) < 2 || len(labels) > 3 {
		return nil, false
	}
	key := client.ObjectKey{Namespace: labels[len(labels)-1], Name: labels[len(labels)-2]}
	var service corev1.Service
	if err := n.Client.Get(ctx, key, &service); err != nil {
		return nil, false
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		return []string{service.Spec.ClusterIP}, len(labels) == 2
	}
	var slices discoveryv1.EndpointSliceList
	if err := n.Client.List(ctx, &slices, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}); err != nil {
		return nil, false
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			named := len(labels) == 2 || e.Hostname != nil && *e.Hostname == labels[0]
			if ready && named {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses, len(labels) == 2 || len(addresses) > 0
}

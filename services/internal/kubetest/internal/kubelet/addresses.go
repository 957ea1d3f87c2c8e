package kubelet

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// block is a /16 of 127/8 that this process alone gives out.
type block struct {
	lock  net.Listener
	octet int

	mu   sync.Mutex
	next int
}

// reserve finds a free block. The claim on it is an abstract socket, which goes with
// the process however that ends.
func reserve() (*block, error) {
	for octet := 64; octet < 192; octet++ {
		lock, err := net.Listen("unix", fmt.Sprintf("@holdfast-kubetest-127.%d", octet))
		if err == nil {
			return &block{lock: lock, octet: octet, next: 2}, nil
		}
	}
	return nil, errors.New("every block of addresses is in use")
}

// host is the address of the node itself.
func (b *block) host() string { return fmt.Sprintf("127.%d.0.1", b.octet) }

// pair gives a Pod's address and that of its loopback, never given before.
func (b *block) pair() (pod, loopback string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next > 0xfffc {
		return "", "", errors.New("every address of the block was given to a Pod")
	}
	n := b.next
	b.next += 2
	return b.address(n), b.address(n + 1), nil
}

func (b *block) address(n int) string { return fmt.Sprintf("127.%d.%d.%d", b.octet, n>>8, n&0xff) }

func (b *block) release() { _ = b.lock.Close() }

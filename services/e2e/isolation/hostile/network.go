package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds one connection.
const dialTimeout = 3 * time.Second

// connect dials Network and Address, says Text, and wants an answer where there is
// something to say.
func connect(o Order) (string, error) {
	conn, err := net.DialTimeout(o.Network, o.Address, dialTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if o.Text == "" {
		return "connected", nil
	}
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, o.Text); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// fetch asks for an URL at Address over HTTP and wants Text in the answer.
func fetch(o Order) (string, error) {
	client := http.Client{Timeout: dialTimeout}
	resp, err := client.Get(o.Address)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && !strings.Contains(string(body), o.Text) {
		err = fmt.Errorf("somebody else answers: %.80q", body)
	}
	return string(body), err
}

// interfaces looks for a network beyond the loopback.
func interfaces(Order) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			return i.Name, nil
		}
	}
	return "", errors.New("only the loopback")
}

// route asks the kernel for a way to Address; nothing is sent.
func route(o Order) (string, error) {
	conn, err := net.Dial("udp", o.Address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return "from " + conn.LocalAddr().String(), nil
}

// openSocket opens a socket of the family Count and the type PID, for Text.
func openSocket(o Order) (string, error) {
	protocol := 0
	if o.Text == "icmp" {
		protocol = unix.IPPROTO_ICMP
	}
	fd, err := unix.Socket(o.Count, o.PID, protocol)
	if err != nil {
		return "", err
	}
	return "open", unix.Close(fd)
}

// agentAPI asks sandboxd for what Text and Path say, with the headers of another
// session, and Count bytes of body. The proof is an answer of 2xx.
func agentAPI(o Order) (string, error) {
	var body io.Reader
	if o.Count > 0 {
		body = bytes.NewReader(bytes.Repeat([]byte(" "), o.Count))
	} else if o.Text != "" {
		body = strings.NewReader(o.Text)
	}
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, os.Getenv("HOLDFAST_URL"), body)
	if err != nil {
		return "", err
	}
	req.URL.Opaque = o.Path // as it is, unclean too
	req.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"Holdfast-Session", "Holdfast-Subject", "X-Forwarded-User", "Forwarded"} {
		req.Header.Set(name, o.Address)
	}
	req.Header.Set("Holdfast-Generation", "1")
	req.Header.Set("Holdfast-Tenant", "default")
	req.Header.Set("Authorization", "Bearer forged")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return "", fmt.Errorf("%d: %s", resp.StatusCode, answer)
	}
	return string(answer), nil
}

// flood asks sandboxd Count times as fast as it can; the proof is that all were let
// in.
func flood(o Order) (string, error) {
	var mu sync.Mutex
	statuses := map[int]int{}
	var refusal string
	var wg sync.WaitGroup
	orders := make(chan struct{})
	for range 50 {
		wg.Go(func() {
			for range orders {
				resp, err := http.Get(os.Getenv("HOLDFAST_URL") + "/v1/agent/session")
				status, body := 0, []byte(nil)
				if err == nil {
					status = resp.StatusCode
					body, _ = io.ReadAll(io.LimitReader(resp.Body, 4096))
					resp.Body.Close()
				}
				mu.Lock()
				if statuses[status]++; status != http.StatusOK {
					refusal = string(body)
				}
				mu.Unlock()
			}
		})
	}
	for range o.Count {
		orders <- struct{}{}
	}
	close(orders)
	wg.Wait()
	summary := fmt.Sprintf("%v %s", statuses, refusal)
	if statuses[http.StatusOK] < o.Count {
		return "", errors.New(summary)
	}
	return summary, nil
}

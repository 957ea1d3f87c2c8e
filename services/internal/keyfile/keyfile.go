// Package keyfile keeps the Ed25519 key that signs sandboxes' binds and tokens: the
// workload service has the private half, the gateway needs only the public one. The
// files are what other tools make and read, too (PEM, PKCS #8 and PKIX):
//
//	openssl genpkey -algorithm ed25519 -out sandbox.pem
//	openssl pkey -in sandbox.pem -pubout -out sandbox.pem.pub
package keyfile

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// PublicSuffix is appended to a private key's file for the public half.
const PublicSuffix = ".pub"

// ErrNoKey is wrapped where a file holds no key of the wanted kind.
var ErrNoKey = errors.New("no Ed25519 key")

// Ensure reads the private key in path, or makes one where there is no such file:
// path with mode 0600 and path.pub beside it.
func Ensure(path string) (ed25519.PrivateKey, error) {
	key, err := Private(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	shown, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	// The public half first: where the private one is there, both are.
	if err := write(path+PublicSuffix, "PUBLIC KEY", shown, 0o644); err != nil {
		return nil, err
	}
	return key, write(path, "PRIVATE KEY", private, 0o600)
}

func write(path, kind string, der []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// Private reads a private key. Errors are the file system's, or wrap ErrNoKey.
func Private(path string) (ed25519.PrivateKey, error) {
	block, err := read(path)
	if err != nil {
		return nil, err
	}
	if block.Type == "PRIVATE KEY" {
		if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := parsed.(ed25519.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, fmt.Errorf("%s: %w that is private", path, ErrNoKey)
}

// Public reads a public key, from its own file or from the private one's.
func Public(path string) (ed25519.PublicKey, error) {
	block, err := read(path)
	if err != nil {
		return nil, err
	}
	if block.Type == "PUBLIC KEY" {
		if parsed, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if key, ok := parsed.(ed25519.PublicKey); ok {
				return key, nil
			}
		}
	}
	private, err := Private(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, ErrNoKey)
	}
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w", path, ErrNoKey)
	}
	return public, nil
}

func read(path string) (*pem.Block, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s: %w: it is not PEM", path, ErrNoKey)
	}
	return block, nil
}

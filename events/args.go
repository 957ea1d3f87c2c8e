package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// ErrArgs is wrapped by every error of [CanonicalArgs].
var ErrArgs = errors.New("arguments can't be made canonical")

// CanonicalArgs gives the RFC 8785 form of a call's arguments and the lower-case
// hex SHA-256 over it. Any client can compute the same from what it was shown.
// None are {}.
//
// RFC 8785 takes numbers as IEEE 754 doubles. One that a double can't hold would
// be shown, hashed and approved as another than the agent runs with, so it is
// refused; so are a key that stands twice and text that isn't Unicode.
func CanonicalArgs(args json.RawMessage) (canonical json.RawMessage, hash string, err error) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := exactNumbers(args); err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrArgs, err)
	}
	c, err := jcs.Transform(args)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrArgs, err)
	}
	sum := sha256.Sum256(c)
	return c, hex.EncodeToString(sum[:]), nil
}

// exactNumbers refuses the first number that changes its value as a double. The
// decoder also bounds how deep values nest, which jcs does not.
func exactNumbers(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		t, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		n, ok := t.(json.Number)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(n.String(), 64)
		if err != nil || decimal(n.String()) != decimal(strconv.FormatFloat(f, 'e', -1, 64)) {
			return fmt.Errorf("number %.40s is not exact as a double: send it as a string", n)
		}
	}
}

// decimal brings a JSON number to one form for each value: sign, digits without
// outer zeros, and the power of ten of the last digit.
func decimal(number string) string {
	sign, rest := "", number
	if strings.HasPrefix(rest, "-") {
		sign, rest = "-", rest[1:]
	}
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa = rest[:i]
		var err error
		if exponent, err = strconv.Atoi(rest[i+1:]); err != nil {
			return number // no double has such an exponent
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	significant := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(significant)
	return sign + significant + "e" + strconv.Itoa(exponent)
}

package recipe

import (
	"errors"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// errQuantity says which quantities are read: those of Kubernetes that can be a limit.
var errQuantity = errors.New(`use a number such as "500m" or "2" for cpu, "512Mi" or "1Gi" for memory`)

// maxQuantity leaves room for a sum.
const maxQuantity = math.MaxInt64 / 2

// millis reads an amount of cpu in thousandths, rounded up; 0 for none.
func millis(q string) (int64, error) {
	return read(q, resource.NewQuantity(maxQuantity/1000, resource.DecimalSI), (*resource.Quantity).MilliValue)
}

// bytes reads an amount of memory or disk, rounded up; 0 for none.
func bytes(q string) (int64, error) {
	return read(q, resource.NewQuantity(maxQuantity, resource.DecimalSI), (*resource.Quantity).Value)
}

// read takes a positive quantity up to the greatest.
func read(q string, greatest *resource.Quantity, in func(*resource.Quantity) int64) (int64, error) {
	if q == "" {
		return 0, nil
	}
	quantity, err := resource.ParseQuantity(q)
	if err != nil || quantity.Sign() <= 0 || quantity.Cmp(*greatest) > 0 {
		return 0, errQuantity
	}
	return in(&quantity), nil
}

// quantity checks that an amount can be read.
func (c *checker) quantity(pointer, q string, read func(string) (int64, error)) {
	if _, err := read(q); err != nil {
		c.wrong(pointer, "can't be read: %v", err)
	}
}

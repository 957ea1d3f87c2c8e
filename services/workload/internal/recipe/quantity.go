package recipe

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// errQuantity says which quantities are read: those of Kubernetes that limits
// need.
var errQuantity = errors.New(`use a number such as "500m" or "2" for cpu, "512Mi" or "1Gi" for memory`)

// millis reads an amount of cpu in thousandths; 0 for none.
func millis(q string) (int64, error) {
	if q == "" {
		return 0, nil
	}
	scale := 1000.0
	if rest, ok := strings.CutSuffix(q, "m"); ok {
		q, scale = rest, 1
	}
	return scaled(q, scale)
}

var suffixes = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10},
	{"Mi", 1 << 20},
	{"Gi", 1 << 30},
	{"Ti", 1 << 40},
	{"k", 1e3},
	{"M", 1e6},
	{"G", 1e9},
	{"T", 1e12},
}

// bytes reads an amount of memory; 0 for none.
func bytes(q string) (int64, error) {
	if q == "" {
		return 0, nil
	}
	for _, s := range suffixes {
		if rest, ok := strings.CutSuffix(q, s.suffix); ok {
			return scaled(rest, s.factor)
		}
	}
	return scaled(q, 1)
}

func scaled(number string, factor float64) (int64, error) {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f <= 0 || math.IsInf(f, 0) || math.IsNaN(f) || f*factor > math.MaxInt64/2 {
		return 0, errQuantity
	}
	return int64(f * factor), nil
}

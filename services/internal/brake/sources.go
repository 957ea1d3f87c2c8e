package brake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/events"
)

// askFor bounds one question to NATS.
const askFor = 2 * time.Second

// JetStream measures what NATS reports: the streams EVENTS and BLOBS against their
// max_bytes, and the account against its storage limit. What has no limit has no share.
func JetStream(js jetstream.JetStream) Source {
	return func(ctx context.Context) ([]Usage, error) {
		ctx, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		var (
			found []Usage
			errs  []error
		)
		for _, s := range []struct{ name, what string }{{events.StreamEvents, "stream"}, {events.StreamBlobs, usageBlobs}} {
			stream, err := js.Stream(ctx, s.name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			info := stream.CachedInfo()
			found = appendLimited(found, s.what, info.State.Bytes, info.Config.MaxBytes)
		}
		account, err := js.AccountInfo(ctx)
		if err == nil {
			found = appendLimited(found, "account", account.Store, account.Limits.MaxStore)
			for _, tier := range account.Tiers {
				found = appendLimited(found, "account", tier.Store, tier.Limits.MaxStore)
			}
		}
		return found, errors.Join(append(errs, err)...)
	}
}

func appendLimited(found []Usage, what string, used uint64, limit int64) []Usage {
	if limit <= 0 {
		return append(found, Usage{What: what, Used: used})
	}
	return append(found, Usage{What: what, Used: used, Limit: uint64(limit)})
}

// counted is how much of a large file system counts: on a disk of terabytes 85 %
// would leave hundreds of gigabytes unused, so only its last 32 GiB are looked at.
const counted = 32 << 30

// Disk measures the file system that holds a directory, as far as it counts. What
// is reserved for root is not room.
func Disk(dir string) Source {
	return func(context.Context) ([]Usage, error) {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return nil, fmt.Errorf("file system of %s: %w", dir, err)
		}
		block := uint64(fs.Bsize)
		free := fs.Bavail * block
		size := (fs.Blocks-fs.Bfree)*block + free
		return []Usage{lastOf(size, free)}, nil
	}
}

// lastOf gives the usage of the part of a file system that counts.
func lastOf(size, free uint64) Usage {
	limit := min(size, counted)
	return Usage{What: "disk", Used: limit - min(free, limit), Limit: limit}
}
